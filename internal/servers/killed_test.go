package servers

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVariable makes this program start the server that it names, instead of tests, in a process that is killed then.
const childVariable = "EINMAL_TEST_CHILD"

// children are the servers that a child can start; each answers with its address.
var children = map[string]func() (string, error){
	"programs": func() (string, error) {
		db, err := localPostgres(context.Background())
		if err != nil {
			return "", err
		}
		return db.URL, nil
	},
	"jars": func() (string, error) {
		k, err := localKafka(context.Background())
		if err != nil {
			return "", err
		}
		return k.Addrs[0], nil
	},
	"container": func() (string, error) {
		db, err := dockerPostgres(context.Background(), testLifetime)
		if err != nil {
			return "", err
		}
		return db.URL, nil
	},
}

// ChildMain is the main of the children: a test starts the program that it runs in. There it starts a server and never
// returns.
func ChildMain() {
	name := os.Getenv(childVariable)
	if name == "" {
		return
	}
	address, err := children[name]()
	if err != nil {
		fmt.Println(err) //nolint:forbidigo // read by the parent
		os.Exit(1)
	}
	fmt.Println("address", address) //nolint:forbidigo // read by the parent
	for {
		time.Sleep(time.Hour)
	}
}

// killedChild starts a server in a child process and kills that as nobody can prevent. It answers with the server's
// address and the child's process id.
func killedChild(t *testing.T, name string) (address, pid string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+name)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		said = append(said, lines.Text())
		address, _ = strings.CutPrefix(lines.Text(), "address ")
		if address == lines.Text() {
			address = ""
		}
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	if address == "" {
		t.Fatalf("the child started no server:\n%s", strings.Join(said, "\n"))
	}
	return address, fmt.Sprint(cmd.Process.Pid)
}

// left are the files that a killed process left.
func left(prefix, pid string) []string {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+pid+"-*"))
	return dirs
}

// listensNoMore waits 30 seconds at most: PostgreSQL ends by itself some time after its files are gone. That it does
// not answer queries would prove nothing, for the same reason.
func listensNoMore(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		_ = conn.Close()
	}
	t.Errorf("the server at %s lives on", addr)
}

func hostOf(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func TestProgramsDieWithAKilledProcess(t *testing.T) {
	t.Parallel()
	if _, err := postgresBin(); err != nil {
		t.Skip(err)
	}
	database, pid := killedChild(t, "programs")
	listensNoMore(t, hostOf(t, database))
	sweepDirs("einmal-postgres-")
	if dirs := left("einmal-postgres-", pid); len(dirs) > 0 {
		t.Errorf("not swept: %v", dirs)
	}
}

func TestJarsDieWithAKilledProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(EnvKafkaJars) == "" {
		t.Skip(EnvKafkaJars + " is not set")
	}
	addr, pid := killedChild(t, "jars")
	listensNoMore(t, addr)
	sweepDirs("einmal-kafka-")
	if dirs := left("einmal-kafka-", pid); len(dirs) > 0 {
		t.Errorf("not swept: %v", dirs)
	}
}

func TestContainersAreSweptAfterAKilledProcess(t *testing.T) {
	t.Parallel()
	e := needPostgresImage(t)
	database, _ := killedChild(t, "container")
	e.sweep()
	listensNoMore(t, hostOf(t, database)) // another test's sweep may be at it
}
