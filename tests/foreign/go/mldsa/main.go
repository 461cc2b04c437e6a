// ML-DSA-44 by Go's own crypto/mldsa: whether a signature (FIPS 204, no context) of stdin holds.
//
//	mldsa PUBLICHEX SIGNATUREHEX < message
package main

import (
	"crypto/mldsa"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := verify(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func verify() error {
	public, err := hex.DecodeString(os.Args[1])
	if err != nil {
		return err
	}
	signature, err := hex.DecodeString(os.Args[2])
	if err != nil {
		return err
	}
	message, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	key, err := mldsa.NewPublicKey(mldsa.MLDSA44(), public)
	if err != nil {
		return err
	}
	return mldsa.Verify(key, message, signature, nil)
}
