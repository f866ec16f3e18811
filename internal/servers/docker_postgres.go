package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"os"
	"time"
)

// defaultPostgresImage is a variable for the tests on machines that have another one.
var defaultPostgresImage = "postgres:17-alpine"

func postgresImage() string { return cmp.Or(os.Getenv(EnvPostgresImage), defaultPostgresImage) }

// DockerPostgres starts a server by Docker and nothing else, from the image that EINMAL_POSTGRES_IMAGE names or from
// postgres:17-alpine. Docker ends it after lifetime, also when this process was killed.
func DockerPostgres(ctx context.Context, lifetime time.Duration) (*Database, error) {
	db, err := dockerPostgres(ctx, lifetime)
	if err != nil {
		return nil, err
	}
	return db.named(ctx, nil)
}

func dockerPostgres(ctx context.Context, lifetime time.Duration) (*Database, error) {
	image := postgresImage()
	e, err := findEngine(ctx)
	if err != nil {
		return nil, err
	}
	db, err := e.postgres(ctx, image, lifetime)
	if err != nil {
		e.release()
		return nil, err
	}
	return db, nil
}

func (e *engine) postgres(ctx context.Context, image string, lifetime time.Duration) (*Database, error) {
	if err := e.need(ctx, image); err != nil {
		return nil, err
	}
	db := &Database{Origin: "by Docker, image " + image}
	password := rand.Text()
	c, err := e.serve(ctx, func(port string) (spec, func(context.Context) error) {
		db.URL = postgresURL("postgres", password, port, "postgres")
		return spec{
			name: "einmal-postgres", image: image, port: "5432", lifetime: lifetime,
			env: []string{"POSTGRES_PASSWORD=" + password, "POSTGRES_INITDB_ARGS=--no-sync"},
			cmd: append([]string{"postgres"}, postgresFlags()...),
		}, db.ping
	})
	if err != nil {
		return nil, err
	}
	db.close = c.close
	return db, nil
}
