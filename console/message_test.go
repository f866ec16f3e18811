package console

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

var moves = regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}\x{200b}-\x{200f}\x{202a}-\x{202e}\x{2066}-\x{2069}\x{feff}]`)

// given are fields of forms, which repeat what they were given byte for byte.
var given = regexp.MustCompile(`value="[^"]*"`)

// kafka answers with what is set.
type kafka struct {
	group func(ctx context.Context, name string) (*consumer.Group, error)
	msg   func(ctx context.Context) (*consumer.Message, error)
}

func (k kafka) Group(ctx context.Context, name string) (*consumer.Group, error) {
	if k.group == nil {
		return nil, errors.New("no group")
	}
	return k.group(ctx, name)
}

func (k kafka) Message(ctx context.Context, _ string, _ int32, _ int64) (*consumer.Message, error) {
	return k.msg(ctx)
}

// A message may hold anything: nothing of it is markup, nothing moves a terminal or turns the direction of writing, and
// it costs little.
func TestHostileMessage(t *testing.T) {
	t.Parallel()
	nasty := map[string][]byte{
		"markup":   []byte(`"><script>alert(1)</script><img src=x onerror=alert(1)>`),
		"terminal": []byte("\x1b[2J\x1b]0;owned\x07\u009b31m"),
		"broken":   {0xff, 0xfe, 'a', 0xc3},
		"right":    []byte("abc\u202egpj.exe\u2066\u200b"),
		"large":    bytes.Repeat([]byte("<0123456789"), 1_000_000),
		"deep":     []byte(strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000)),
		"nested":   []byte(strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)), // indented it would be 160 MB
		"json":     []byte(`{"a":"</pre><script>1</script>","b":"` + "\u202e" + `"}`),
	}
	for name, part := range nasty {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kafka{msg: func(context.Context) (*consumer.Message, error) {
				return &consumer.Message{Topic: "orders", Offset: 7, Key: part, Value: part,
					Headers: []consumer.Header{{Key: string(part), Value: part}}, Timestamp: time.Now()}, nil
			}}
			b, _ := serving(t, Config{Kafka: k, ShowValues: func(*http.Request) bool { return true }})
			page := b.get("message?topic=orders&partition=0&offset=7&value=1", http.StatusOK)
			b.hasNot(page, "<script>alert", "<script>1", "<img")
			if found := moves.FindString(page); found != "" {
				t.Errorf("the page has %q", found)
			}
			if len(page) > 2<<20 {
				t.Errorf("the page has %d bytes", len(page))
			}
		})
	}
}

// Names that processes tell, errors and parameters of the address are as foreign as messages.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	const nasty = "a\x1b[31m\u202e<script>alert(1)</script>\"'&?#/ %41"
	p := (&told{}).set(nasty, consumer.Status{Phase: nasty, Group: nasty, Partitions: []consumer.PartitionStatus{{
		Topic: nasty, Oldest: 3, Next: -1, Failing: &consumer.Failing{Offset: 3, Attempts: 1, Since: time.Now(),
			Err: errors.New(nasty)},
	}}}).set("own", map[string]string{nasty: nasty})
	k := kafka{
		group: func(context.Context, string) (*consumer.Group, error) { return nil, errors.New(nasty) },
		msg:   func(context.Context) (*consumer.Message, error) { return nil, errors.New(nasty) },
	}
	b, _ := serving(t, Config{Title: nasty, Kafka: k, Processes: []Process{{Name: nasty, Status: p}}})
	q := url.QueryEscape(nasty)
	for path, code := range map[string]int{
		"": 200, "partitions": 200, "partitions?group=" + q + "&topic=" + q: 200, "group?name=" + q: 200, "group?name=x" +
			q: 404, "process?name=" + q: 200,
		"process?name=x" + q: 404, "message?topic=" + q + "&partition=0&offset=1": 200, "message?topic=" + q + "&partition=" +
			q + "&offset=" + q: 200, "nowhere/" + url.PathEscape(nasty): 404,
	} {
		page := given.ReplaceAllString(b.get(path, code), "")
		b.hasNot(page, "<script>alert")
		if found := moves.FindString(page); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
	b.has(b.get("", http.StatusOK), `href="./group?name=`+strings.ReplaceAll(q, "+", "&#43;")+`"`)
}

func TestValuesAreHidden(t *testing.T) {
	t.Parallel()
	k := kafka{msg: func(context.Context) (*consumer.Message, error) {
		return &consumer.Message{Topic: "orders", Key: []byte("k-1"), Value: []byte(`{"name":"Anna"}`),
			Headers: []consumer.Header{{Key: "traceparent",
				Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}}}, nil
	}}
	const at = "message?topic=orders&partition=0&offset=0"
	hidden, _ := serving(t, Config{Kafka: k})
	page := hidden.get(at+"&value=1", http.StatusOK)
	hidden.has(page, "k-1", "0af7651916cd43dd8448eb211c80319c", "15 B", "Values are not shown here")
	hidden.hasNot(page, "Anna")
	shown, _ := serving(t, Config{Kafka: k,
		ShowValues: func(r *http.Request) bool { return r.Header.Get("Role") != "guest" }})
	shown.hasNot(shown.get(at, http.StatusOK), "Anna") // it is asked for by itself
	shown.has(shown.get(at+"&value=1", http.StatusOK), "&#34;name&#34;: &#34;Anna&#34;")
	r := httptest.NewRequest(http.MethodGet, "/ops/einmal/"+at+"&value=1", http.NoBody)
	r.Header.Set("Role", "guest")
	shown.hasNot(shown.do(r).Body.String(), "Anna")
}

func TestMessagesAreReadOneAtATime(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	k := kafka{msg: func(context.Context) (*consumer.Message, error) {
		<-release
		return nil, errors.New("late")
	}}
	b, _ := serving(t, Config{Kafka: k, Timeout: 50 * time.Millisecond})
	const at = "message?topic=orders&partition=0&offset=0"
	b.has(b.get(at, http.StatusOK), "Kafka has not answered within 50ms")
	b.has(b.get(at, http.StatusOK), "another message is being read")
	close(release)
}

// A trace's id leads to where traces are, if somebody has said where, and if it is one.
func TestTraceLinks(t *testing.T) {
	t.Parallel()
	const id = "0af7651916cd43dd8448eb211c80319c"
	for name, c := range map[string]struct{ parent, at, link string }{
		"path":       {"00-" + id + "-b7ad6b7169203331-01", "https://tracing.example/trace/{trace_id}", "https://tracing.example/trace/" + id},
		"query":      {"00-" + id + "-b7ad6b7169203331-01", "http://t:16686/x?a=1&id={trace_id}&b", "http://t:16686/x?a=1&amp;id=" + id + "&amp;b"},
		"no address": {"00-" + id + "-b7ad6b7169203331-01", "", ""},
		"none":       {"00-00000000000000000000000000000000-b7ad6b7169203331-01", "https://t/{trace_id}", ""},
		"no digits":  {"00-" + strings.Repeat("/../", 8) + "-b7ad6b7169203331-01", "https://t/{trace_id}", ""},
		"short":      {"00-0af7-b7ad6b7169203331-01", "https://t/{trace_id}", ""},
	} {
		k := kafka{msg: func(context.Context) (*consumer.Message, error) {
			return &consumer.Message{Topic: "orders", Headers: []consumer.Header{{Key: "traceparent", Value: []byte(c.parent)}}}, nil
		}}
		b, _ := serving(t, Config{Kafka: k, TraceURL: c.at})
		page := b.get("message?topic=orders&partition=0&offset=0", http.StatusOK)
		if found := regexp.MustCompile(`<dt>Trace</dt><dd><a href="([^"]*)"><code>` + id + `</code></a>`).FindStringSubmatch(page); (found == nil) != (c.link == "") ||
			found != nil && found[1] != c.link {
			t.Errorf("%s: leads to %q, want %q:\n%s", name, found, c.link, page)
		}
	}
	for _, wrong := range []string{"https://t/trace", "javascript:alert({trace_id})", "ftp://t/{trace_id}", "{trace_id}",
		"https://{trace_id}.example/", "https://t{trace_id}/", "https://user:hunter2@t/{trace_id}", "//t/{trace_id}", "https://t/%zz{trace_id}"} {
		if _, err := New(Config{TraceURL: wrong}); err == nil || !strings.Contains(err.Error(), "Config.TraceURL") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
