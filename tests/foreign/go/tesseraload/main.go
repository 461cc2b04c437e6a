// How many entries a second Tessera's POSIX driver makes durable in a folder, without HTTP between: so many adders, each
// of which waits until its entry has its place before it adds the next.
//
//	tesseraload FOLDER ENTRIES BYTES ADDERS BATCH
//
// prints the seconds from the first entry to the last one's place.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	if err := load(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func load() error {
	var numbers [4]int
	for place := range numbers {
		number, err := strconv.Atoi(os.Args[place+2])
		if err != nil {
			return err
		}
		numbers[place] = number
	}
	entries, size, adders, batch := numbers[0], numbers[1], numbers[2], numbers[3]
	secret, _, err := note.GenerateKey(rand.Reader, "bench.example/tessera")
	if err != nil {
		return err
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		return err
	}
	ctx := context.Background()
	driver, err := posix.New(ctx, posix.Config{Path: os.Args[1]})
	if err != nil {
		return err
	}
	appender, shutdown, _, err := tessera.NewAppender(ctx, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(time.Second).
		WithBatching(uint(batch), 10*time.Millisecond).
		WithPushback(uint(4*adders)))
	if err != nil {
		return err
	}
	var next, failed atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range adders {
		all.Add(1)
		go func() {
			defer all.Done()
			for number := next.Add(1); number <= int64(entries); number = next.Add(1) {
				data := make([]byte, size)
				copy(data, fmt.Sprintf("entry %d ", number))
				if _, err := appender.Add(ctx, tessera.NewEntry(data))(); err != nil {
					failed.Add(1)
				}
			}
		}()
	}
	all.Wait()
	fmt.Println(time.Since(began).Seconds())
	if failed.Load() > 0 {
		return fmt.Errorf("%d entries were not taken", failed.Load())
	}
	return shutdown(ctx)
}
