// Judges by transparency-dev's formats and merkle, the libraries under Tessera, the Go witnesses and Sigstore.
//
//	formats checkpoint FILE ORIGIN VKEY [COSIGNER]...
//	formats inclusion INDEX SIZE LEAF ROOT [HASH]...
//	formats consistency OLD NEW OLDROOT NEWROOT [HASH]...
package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"strconv"

	"github.com/transparency-dev/formats/log"
	f_note "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	if err := judge(os.Args[1], os.Args[2:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func judge(what string, args []string) error {
	if what == "checkpoint" {
		return checkpoint(args[0], args[1], args[2:])
	}
	first, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}
	second, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	var hashes [][]byte
	for _, text := range args[2:] {
		value, err := hex.DecodeString(text)
		if err != nil {
			return err
		}
		hashes = append(hashes, value)
	}
	if what == "inclusion" {
		return proof.VerifyInclusion(rfc6962.DefaultHasher, first, second, hashes[0], hashes[2:], hashes[1])
	}
	return proof.VerifyConsistency(rfc6962.DefaultHasher, first, second, hashes[2:], hashes[0], hashes[1])
}

func checkpoint(file, origin string, vkeys []string) error {
	signed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var verifiers []note.Verifier
	for number, vkey := range vkeys {
		make := f_note.NewVerifier
		if number > 0 {
			make = f_note.NewVerifierForCosignatureV1
		}
		verifier, err := make(vkey)
		if err != nil {
			return err
		}
		verifiers = append(verifiers, verifier)
	}
	_, _, opened, err := log.ParseCheckpoint(signed, origin, verifiers[0], verifiers[1:]...)
	if err != nil {
		return err
	}
	fmt.Println(len(opened.Sigs))
	return nil
}
