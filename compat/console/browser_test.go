package console_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/einmal-go/einmal/internal/childtest"
)

// The environment's names. In CI both are set: there the absence of a browser is a failure.
const (
	envAxe     = "EINMAL_AXE" // the file axe.min.js of the npm package axe-core
	envRequire = "EINMAL_REQUIRE_BROWSER"
	envProcess = "EINMAL_TEST_PROCESS"
)

// browser is the one of all tests; each has tabs of its own.
var browser struct {
	once sync.Once
	ctx  context.Context
	stop context.CancelFunc
	err  error
}

func TestMain(m *testing.M) {
	childtest.Main(envProcess, consume)
	code := m.Run()
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
}

func startBrowser() {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		browser.err = fmt.Errorf("there is no chromium: apt-get install chromium")
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stopBrowser := chromedp.NewContext(ctx)
	browser.ctx, browser.stop = ctx, func() {
		stopBrowser()
		stopAllocator()
	}
	browser.err = chromedp.Do(ctx)
}

// tab is a tab of the browser, with cookies of its own, and what was wrong in it.
type tab struct {
	*testing.T

	ctx context.Context

	mu    sync.Mutex
	wrong []string
}

// open opens a tab. Errors of scripts, and what the page's policy has refused, fail the test.
func open(t *testing.T) *tab {
	t.Helper()
	browser.once.Do(startBrowser)
	if browser.err != nil {
		if os.Getenv(envRequire) == "" {
			t.Skipf("%v; %s=1 makes that a failure", browser.err, envRequire)
		}
		t.Fatal(browser.err)
	}
	own, closeTab := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	b := &tab{T: t}
	err := chromedp.Listen(own, b.heard)
	if err != nil {
		t.Fatal(err)
	}
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(own, 5*time.Minute)
	t.Cleanup(func() {
		cancel()
		closeTab()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.wrong {
			t.Errorf("in the browser: %s", text)
		}
	})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, page.Enable, page.EnableParams{})
	return b
}

// heard notes what went wrong. Those of answers with a status of their own are for the test to look at.
func (b *tab) heard(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			text = e.Entry.Text
		}
	case *page.EventJavascriptDialogOpening:
		text = "a dialog: " + e.Message
	}
	if text != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrong = append(b.wrong, text)
	}
}

func (b *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// call gives the browser a command.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.Fatal(err)
	}
}

// click clicks on what a selector or an XPath names.
func (b *tab) click(what string) {
	b.Helper()
	if strings.HasPrefix(what, "//") {
		b.run(chromedp.Click(what))
		return
	}
	b.run(chromedp.Click(chromedp.CSS(what)))
}

// visit opens a page.
func (b *tab) visit(url string) {
	b.Helper()
	b.run(chromedp.Navigate(url), chromedp.WaitReady(chromedp.CSS("main")))
}

// typeInto types a text into a field.
func typeInto(field, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(field), text)
}

// value is what an expression of JavaScript comes to.
func value[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", expression[:min(len(expression), 200)], err)
	}
	return v
}

// text is what a reader sees of an element.
func (b *tab) text(selector string) string {
	b.Helper()
	return value[string](b, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector))
}

// await waits until the page has all of these.
func (b *tab) await(texts ...string) {
	b.Helper()
	seen, missing := "", ""
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		seen, missing = b.text("main"), ""
		for _, text := range texts {
			if !strings.Contains(seen, text) {
				missing += fmt.Sprintf("%q ", text)
			}
		}
		if missing == "" {
			return
		}
	}
	b.Fatalf("the page does not show %s:\n%s", missing, seen)
}

// has reports whether the page has all of these.
func (b *tab) has(texts ...string) bool {
	b.Helper()
	seen := b.text("main")
	return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(seen, text) })
}

// eventually waits for a condition.
func (b *tab) eventually(what string, ok func() bool) {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if ok() {
			return
		}
	}
	b.Fatalf("not within two minutes: %s", what)
}

// look is how a page is looked at.
type look struct {
	name   string
	dark   bool
	width  int64
	height int64
}

var looks = []look{{"light", false, 1280, 900}, {"dark", true, 1280, 900}, {"narrow", false, 360, 740},
	{"narrow and dark", true, 360, 740}}

func (b *tab) as(l look) {
	b.Helper()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	b.run(chromedp.EmulateViewport(l.width, l.height))
	call(b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// axe is the automatic check; nil where the machine has none.
func axe(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(os.Getenv(envAxe))
	if err != nil && os.Getenv(envRequire) != "" {
		t.Fatalf("%s names no axe.min.js: %v", envAxe, err)
	}
	if err != nil {
		t.Logf("the automatic check is left out: %s names no axe.min.js", envAxe)
	}
	return text
}

// violation is what axe has found.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// check runs axe on the page. It is evaluated by the driver, which the page's policy does not hold.
func (b *tab) check(what string, axe []byte) {
	b.Helper()
	if axe == nil {
		return
	}
	value[bool](b, string(axe)+"; true")
	for _, v := range value[[]violation](b, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations)`) {
		for _, n := range v.Nodes {
			b.Errorf("%s: %s (%s): %s\n%s", what, v.Help, v.ID, n.HTML, n.Summary)
		}
	}
}
