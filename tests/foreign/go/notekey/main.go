// A new key for a signed note, as Go's tools write it: the secret and the public one, a line each.
//
//	notekey NAME
package main

import (
	"crypto/rand"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"
)

func main() {
	secret, public, err := note.GenerateKey(rand.Reader, os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(secret)
	fmt.Println(public)
}
