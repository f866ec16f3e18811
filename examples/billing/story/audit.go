package story

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/audit"
)

// ledger is the table of a service in which each request must stand once.
type ledger struct {
	title   string
	service string
	table   string
}

var ledgers = []ledger{
	{"orders", ordersService, "orders"},
	{"charges", billingService, "charge"},
	{"provider charges", bankService, "payment"},
	{"receipts", receiptService, "receipt"},
}

// entries are the rows of a ledger about one request.
type entries struct {
	Reference string
	Count     int
	Cents     int64
}

// hop is a topic, and the service that consumes it with einmal. The query returns the id of an event for each of its
// effects.
type hop struct {
	topic, group, service, effects string
}

var hops = []hop{
	{ordersTopic, billingGroup, billingService, `SELECT order_id FROM charge`},
	{paymentsTopic, receiptsGroup, receiptService, `SELECT order_id FROM receipt`},
}

// auditHops has package audit look at what each service has made of its topic. It knows the topics, the groups and the
// tables, and nothing of the services' code, nor of what was ordered.
func (s *Story) auditHops(ctx context.Context) (reports []*audit.Report, err error) {
	for _, h := range hops {
		err := with(ctx, s.url(Reader, h.service), func(pool *pgxpool.Pool) error {
			db := stdlib.OpenDBFromPool(pool)
			defer db.Close()
			r, err := audit.Run(ctx, audit.Kafka{Brokers: strings.Split(s.Brokers, ",")}, db, audit.Config{
				Topic: s.topic(h.topic), Group: s.topic(h.group), Effects: h.effects,
			})
			reports = append(reports, r)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("audit %s: %w", h.topic, err)
		}
	}
	return reports, nil
}

// count compares what the services' databases hold with what was ordered.
func (s *Story) count(ctx context.Context) (f Figures, err error) {
	requests := makeRequests(int(s.customers.made.Load()), s.Seed)
	prices := priceList(requests)
	f = Figures{Requests: len(requests), Expected: total(prices)}
	err = s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM delivery), (SELECT count(*) FROM lost_answer)`).Scan(&f.Deliveries, &f.LostAnswers)
	if err != nil {
		return f, fmt.Errorf("count the deliveries: %w", err)
	}
	for i, l := range ledgers {
		list, err := readLedger(ctx, s.url(Reader, l.service), l.table)
		if err != nil {
			return f, fmt.Errorf("read the %s: %w", l.title, err)
		}
		f.Ledgers[i] = count(list, prices)
	}
	for _, service := range []string{billingService, receiptService} {
		n, err := scalar(ctx, s.url(Reader, service), `SELECT coalesce(sum(duplicates), 0)::bigint FROM processed_event`)
		if err != nil {
			return f, fmt.Errorf("count the duplicates of %s: %w", service, err)
		}
		f.Duplicates += n
	}
	if s.Mode == Einmal { // the others keep no records
		f.Audits, err = s.auditHops(ctx)
	}
	return f, err
}

func readLedger(ctx context.Context, database, table string) (list []entries, err error) {
	err = with(ctx, database, func(pool *pgxpool.Pool) error {
		rows, err := pool.Query(ctx, `SELECT reference, count(*), sum(cents)::bigint FROM `+pgx.Identifier{table}.Sanitize()+
			` GROUP BY reference`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[entries])
		return err
	})
	return list, err
}

func scalar(ctx context.Context, database, sql string) (n int, err error) {
	err = with(ctx, database, func(pool *pgxpool.Pool) error { return pool.QueryRow(ctx, sql).Scan(&n) })
	return n, err
}

// with opens a pool for as long as f runs.
func with(ctx context.Context, database string, f func(*pgxpool.Pool) error) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(pool)
}

// count returns what the rows come to. A row about a request that nobody made counts as doubled.
func count(list []entries, prices map[string]int64) (l Ledger) {
	known := 0
	for _, e := range list {
		l.Rows += e.Count
		l.Cents += e.Cents
		l.Doubled += e.Count
		if _, made := prices[e.Reference]; made {
			l.Doubled--
			known++
		}
	}
	l.Missing = len(prices) - known
	return l
}
