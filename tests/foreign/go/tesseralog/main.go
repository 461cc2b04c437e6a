// A log that Tessera keeps in a folder, cosigned by a witness: entries are added, and it ends when a checkpoint with the
// witness's cosignature is published, or when none comes in time.
//
//	tesseralog FOLDER SECRETKEY FIRST COUNT WITNESSVKEY WITNESSURL
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	if err := grow(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func grow() error {
	first, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(os.Args[4])
	if err != nil {
		return err
	}
	signer, err := note.NewSigner(os.Args[2])
	if err != nil {
		return err
	}
	address, err := url.Parse(os.Args[6])
	if err != nil {
		return err
	}
	witness, err := tessera.NewWitness(os.Args[5], address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	driver, err := posix.New(ctx, posix.Config{Path: os.Args[1]})
	if err != nil {
		return err
	}
	options := tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(100*time.Millisecond).
		WithBatching(64, 10*time.Millisecond).
		WithWitnesses(tessera.NewWitnessGroup(1, witness), nil)
	appender, _, reader, err := tessera.NewAppender(ctx, driver, options)
	if err != nil {
		return err
	}
	awaiter := tessera.NewPublicationAwaiter(ctx, reader.ReadCheckpoint, 50*time.Millisecond)
	var added []tessera.IndexFuture
	for number := first; number < first+count; number++ {
		added = append(added, appender.Add(ctx, tessera.NewEntry([]byte(fmt.Sprintf("entry %d", number)))))
	}
	for _, future := range added {
		if _, _, err := awaiter.Await(ctx, future); err != nil {
			return fmt.Errorf("not published: %w", err)
		}
	}
	return nil
}
