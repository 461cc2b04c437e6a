// Judges by filippo.io/torchwood, a library for tlog-tiles clients and witnesses.
//
//	torchwood entries FOLDER VKEY          every entry, one a line, each authenticated
//	torchwood proof FILE VKEY LEAFHASH     a tlog-proof of the leaf
//	torchwood policy FILE POLICY           a cosigned checkpoint against a tlog-policy
package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	judges := map[string]func([]string) error{"entries": entries, "proof": proof, "policy": policy}
	if err := judges[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func one(vkey string) (torchwood.Policy, error) {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return nil, err
	}
	return torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(verifier.Name()), torchwood.SingleVerifierPolicy(verifier)), nil
}

func entries(args []string) error {
	trusted, err := one(args[1])
	if err != nil {
		return err
	}
	signed, err := os.ReadFile(filepath.Join(args[0], "checkpoint"))
	if err != nil {
		return err
	}
	checkpoint, _, err := torchwood.VerifyCheckpoint(signed, trusted)
	if err != nil {
		return err
	}
	tiles, err := torchwood.NewTileFS(os.DirFS(args[0]))
	if err != nil {
		return err
	}
	client, err := torchwood.NewClient(tiles)
	if err != nil {
		return err
	}
	for _, entry := range client.AllEntries(context.Background(), checkpoint.Tree, 0) {
		fmt.Println(string(entry))
	}
	return client.Err()
}

func proof(args []string) error {
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	trusted, err := one(args[1])
	if err != nil {
		return err
	}
	var leaf tlog.Hash
	if _, err := hex.Decode(leaf[:], []byte(args[2])); err != nil {
		return err
	}
	if err := torchwood.VerifyProof(trusted, leaf, data); err != nil {
		return err
	}
	extra, err := torchwood.ProofExtraData(data)
	fmt.Print(string(extra))
	return err
}

func policy(args []string) error {
	signed, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	wanted, err := torchwood.ParsePolicy(text)
	if err != nil {
		return err
	}
	_, opened, err := torchwood.VerifyCheckpoint(signed, wanted)
	if err != nil {
		return err
	}
	fmt.Println(len(opened.Sigs))
	return nil
}
