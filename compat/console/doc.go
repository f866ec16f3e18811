// Package console has the tests of the console in a browser: each page with an automatic check of what readers with
// disabilities need, in light and dark, on a narrow screen, without JavaScript, by the keyboard alone; pages that keep
// up; a fleet of which a process is killed. shoot makes the pictures of docs/console.md.
package console
