// Tessera's fsck over a log in a folder: bundles hashed, every tile of every level compared, the root against the
// signed checkpoint. (Its own command draws on the terminal with a library that is not needed here.)
//
//	fsck FOLDER VKEY
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	verifier, err := note.NewVerifier(os.Args[2])
	if err == nil {
		files := &client.FileFetcher{Root: os.Args[1]}
		err = fsck.New(verifier.Name(), verifier, files, leaves, fsck.Opts{N: 2}).Check(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func leaves(bundle []byte) ([][]byte, error) {
	var entries api.EntryBundle
	if err := entries.UnmarshalText(bundle); err != nil {
		return nil, err
	}
	var hashes [][]byte
	for _, entry := range entries.Entries {
		hashes = append(hashes, rfc6962.DefaultHasher.HashLeaf(entry))
	}
	return hashes, nil
}
