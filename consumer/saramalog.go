package consumer

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/internal/safelog"
)

// LogSarama sends what the Kafka client library logs to log, at level Debug. Some of its failures are told nowhere
// else. Its logger is one for the whole process, so einmal leaves it alone unless main calls this, once, before any
// Consumer runs. The client logs names of topics, groups and brokers, never messages.
func LogSarama(log *slog.Logger) {
	sarama.Logger = saramaLogger{safelog.Logger(log)}
}

type saramaLogger struct{ log *slog.Logger }

func (l saramaLogger) Print(v ...any)            { l.write(fmt.Sprint(v...)) }
func (l saramaLogger) Printf(f string, v ...any) { l.write(fmt.Sprintf(f, v...)) }
func (l saramaLogger) Println(v ...any)          { l.write(fmt.Sprintln(v...)) }

func (l saramaLogger) write(text string) {
	l.log.Debug("sarama: " + redact.Text(strings.TrimSpace(text), maxErrorText))
}
