package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"time"
)

//go:embed assets
var assetFiles embed.FS

// assets serves the style sheet and the script.
type assets struct{ version string }

func newAssets() *assets {
	sum := sha256.New()
	for _, name := range []string{"console.css", "console.js"} {
		text, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // they are embedded
		}
		sum.Write(text)
	}
	return &assets{hex.EncodeToString(sum.Sum(nil)[:6])}
}

// ServeHTTP implements http.Handler.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, err := assetFiles.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if r.URL.Query().Get("v") == a.version {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
}
