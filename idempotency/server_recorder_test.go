package idempotency

import (
	"net/http"
	"reflect"
	"testing"
)

// What of a header is the handler's, and what is added to the outer middlewares' when the answer is repeated.
func TestOwnHeader(t *testing.T) {
	t.Parallel()
	w := newRecorder(http.Header{"Vary": {"Origin"}, "Cache-Control": {"no-store"}}, 100)
	w.Header().Add("Vary", "Accept")
	w.Header().Add("Link", "</next>")
	w.Header().Set("ETag", "1")
	want := http.Header{"Vary": {"Accept"}, "Link": {"</next>"}, "Etag": {"1"}, addedHeader: {"Link", "Vary"}}
	if got := w.ownHeader(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
