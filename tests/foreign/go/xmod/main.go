// Reads a log with golang.org/x/mod/sumdb, the library of Go's own checksum database: note opens the checkpoint, tlog
// authenticates every tile, proves every entry and proves that every shorter tree is a prefix.
//
//	xmod FOLDER VKEY
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type folder string

func (f folder) Height() int                            { return 8 }
func (f folder) SaveTiles(tiles []tlog.Tile, _ [][]byte) {}
func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range tiles {
		// x/mod writes tile/<height>/<level>/…, tlog-tiles fixes the height and leaves it out.
		data, err := os.ReadFile(filepath.Join(string(f), strings.Replace(tile.Path(), "tile/8/", "tile/", 1)))
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

func main() {
	if err := read(folder(os.Args[1]), os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func read(log folder, vkey string) error {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return err
	}
	signed, err := os.ReadFile(filepath.Join(string(log), "checkpoint"))
	if err != nil {
		return err
	}
	opened, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return err
	}
	// tlog.ParseTree knows the checksum database's origin alone; the three lines are the same.
	var origin, root string
	var size int64
	if _, err := fmt.Sscanf(opened.Text, "%s\n%d\n%s\n", &origin, &size, &root); err != nil {
		return err
	}
	tree, err := tlog.ParseTree([]byte(fmt.Sprintf("go.sum database tree\n%d\n%s\n", size, root)))
	if err != nil {
		return err
	}
	reader := tlog.TileHashReader(tree, log)
	for start := int64(0); start < size; start += 256 {
		bundle := tlog.Tile{H: 8, L: 0, N: start / 256, W: int(min(256, size-start))}
		path := strings.Replace(bundle.Path(), "tile/8/0/", "tile/entries/", 1)
		data, err := os.ReadFile(filepath.Join(string(log), path))
		if err != nil {
			return err
		}
		for n := start; n < start+int64(bundle.W); n++ {
			if len(data) < 2 || len(data)-2 < int(data[0])<<8|int(data[1]) {
				return fmt.Errorf("%s: an entry is cut off", path)
			}
			length := int(data[0])<<8 | int(data[1])
			leaf := tlog.RecordHash(data[2 : 2+length])
			data = data[2+length:]
			proof, err := tlog.ProveRecord(size, n, reader)
			if err != nil {
				return err
			}
			if err := tlog.CheckRecord(proof, size, tree.Hash, n, leaf); err != nil {
				return fmt.Errorf("entry %d: %w", n, err)
			}
		}
		if len(data) != 0 {
			return fmt.Errorf("%s: bytes after the last entry", path)
		}
	}
	for old := int64(1); old <= size; old++ {
		proof, err := tlog.ProveTree(size, old, reader)
		if err != nil {
			return err
		}
		earlier, err := tlog.TreeHash(old, reader)
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(proof, size, tree.Hash, old, earlier); err != nil {
			return err
		}
	}
	fmt.Println(size)
	return nil
}
