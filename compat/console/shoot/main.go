// Command shoot makes the pictures of docs/console.md of a console that runs, the demo's for example:
//
//	go run ../examples/billing -serve &
//	go run ./console/shoot -url http://127.0.0.1:8080 -out ../docs/console
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// picture is one of them.
type picture struct {
	name, path    string
	click         string // what is opened first: a part of a link's text
	dark          bool
	width, height int64
}

var pictures = []picture{
	{name: "overview", width: 1180, height: 1000},
	{name: "overview-dark", dark: true, width: 1180, height: 1000},
	{name: "overview-narrow", width: 360, height: 740},
	{name: "partitions", path: "partitions", width: 1180, height: 760},
	{name: "message", path: "partitions", click: "@", width: 1180, height: 900},
}

func main() {
	at := flag.String("url", "http://127.0.0.1:8080/", "where the console is")
	out := flag.String("out", ".", "the directory for the pictures")
	only := flag.String("only", "", "names of pictures, separated by commas; all by default")
	extra := flag.String("extra", "", "NAME=PATH of one more picture")
	flag.Parse()
	if err := shoot(strings.TrimSuffix(*at, "/")+"/", *out, *only, *extra); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func shoot(at, out, only, extra string) error {
	ctx, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))...)
	defer stop()
	ctx, stop = chromedp.NewContext(ctx)
	defer stop()
	if err := chromedp.Do(ctx); err != nil { // before any time-out, which would be the browser's
		return err
	}
	list := pictures
	if name, path, ok := strings.Cut(extra, "="); ok {
		list = []picture{{name: name, path: path, width: 1180, height: 900}}
	}
	var errs []error
	for _, p := range list {
		if only == "" || strings.Contains(","+only+",", ","+p.name+",") {
			errs = append(errs, p.take(ctx, at, out))
		}
	}
	return errors.Join(errs...)
}

func (p picture) take(ctx context.Context, at, out string) error {
	scheme := "light"
	if p.dark {
		scheme = "dark"
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err != nil {
		return err
	}
	steps := []chromedp.Action[chromedp.Void]{chromedp.EmulateViewport(p.width, p.height), chromedp.Navigate(at + p.path),
		chromedp.WaitReady(chromedp.CSS("main"))}
	if p.click != "" {
		steps = append(steps, chromedp.Click(`//main//td/a[contains(., "`+p.click+`")]`),
			chromedp.WaitReady(chromedp.CSS("#key")))
	}
	if err := chromedp.Do(ctx, steps...); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, p.name+".png"), png, 0o644) //nolint:gosec // a picture for all
}
