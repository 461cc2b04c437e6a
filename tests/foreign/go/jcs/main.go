// RFC 8785 by github.com/gowebpki/jcs: a JSON text on every line of stdin, its canonical form on every line of stdout;
// a text that it refuses is answered by a line that begins with "refused".
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/gowebpki/jcs"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		canonical, err := jcs.Transform(lines.Bytes())
		if err != nil {
			canonical = []byte("refused " + strings.ReplaceAll(err.Error(), "\n", " "))
		}
		fmt.Println(string(canonical))
	}
}
