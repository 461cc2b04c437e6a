// ML-DSA-44 by Go's own crypto/mldsa: for each seed of 32 bytes on stdin, the public key and the deterministic signature
// of the empty message without context, in hexadecimal.
package main

import (
	"crypto/mldsa"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := sign(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func sign() error {
	seed := make([]byte, 32)
	for {
		if _, err := io.ReadFull(os.Stdin, seed); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		key, err := mldsa.NewPrivateKey(mldsa.MLDSA44(), seed)
		if err != nil {
			return err
		}
		signature, err := key.SignDeterministic(nil, nil)
		if err != nil {
			return err
		}
		fmt.Printf("%x %x\n", key.PublicKey().Bytes(), signature)
	}
}
