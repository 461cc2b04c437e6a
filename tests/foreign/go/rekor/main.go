// What a Rekor v2 makes of the requests on stdin, one a line: the entry that it appends, or why it refuses.
package main

import (
	"bufio"
	"fmt"
	"os"

	v1 "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	pb "github.com/sigstore/rekor-tiles/v2/pkg/generated/protobuf"
	"github.com/sigstore/rekor-tiles/v2/pkg/types/hashedrekord"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"
	"webpki.org/jsoncanonicalizer"
)

func main() {
	taken, err := signature.NewAlgorithmRegistryConfig([]v1.PublicKeyDetails{v1.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256})
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		request := &pb.CreateEntryRequest{}
		if err := protojson.Unmarshal(lines.Bytes(), request); err != nil {
			fmt.Println("refused:", err)
			continue
		}
		entry, err := hashedrekord.ToLogEntry(request.GetHashedRekordRequestV002(), taken)
		if err != nil {
			fmt.Println("refused:", err)
			continue
		}
		text, err := protojson.Marshal(entry)
		if err != nil {
			panic(err)
		}
		canonical, err := jsoncanonicalizer.Transform(text)
		if err != nil {
			panic(err)
		}
		fmt.Println("entry", string(canonical))
	}
}
