// Package codecs has the tests of the codecs of Avro and Protobuf against a schema registry, Apicurio's, from an event
// that is written to the outbox to the handler that takes it.
package codecs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// process is a registry that runs.
type process struct {
	cmd     *exec.Cmd
	address string // of its API that is Confluent's
}

var listens = regexp.MustCompile(`Listening on: http://([0-9.:]+)`)

// startTime is how long a registry may take to start.
const startTime = 3 * time.Minute

// start runs the registry that is in a directory, and waits until it serves. Port 0 is one that is free.
func start(dir string, port string) (*process, error) {
	jars, err := filepath.Glob(filepath.Join(dir, "apicurio-registry-app-*-runner.jar"))
	if err != nil || len(jars) != 1 {
		return nil, fmt.Errorf("%s has no apicurio-registry-app-*-runner.jar", dir)
	}
	cmd := exec.CommandContext(context.Background(), "java", "-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port="+port,
		"-jar", jars[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p, found := &process{cmd: cmd}, make(chan string)
	go func() {
		defer close(found)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if m := listens.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
			}
		}
	}()
	select {
	case address, ok := <-found:
		if !ok {
			return nil, errors.Join(errors.New("the registry ended before it served"), p.stop())
		}
		p.address = "http://" + address + "/apis/ccompat/v7"
	case <-time.After(startTime):
		return nil, errors.Join(fmt.Errorf("the registry did not serve within %v", startTime), p.stop())
	}
	return p, nil
}

func (p *process) stop() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = p.cmd.Wait() // it was killed
	return nil
}
