package dedupstore

// Rows takes what the function of one call has to write. One function writes the rows of many calls, in the order of
// the calls: by COPY, or by one statement. Each call has Rows of its own; they are not safe for concurrent use.
type Rows[R any] struct{ rows []R }

// Add adds rows. They are written if the call's function returns nil.
func (r *Rows[R]) Add(rows ...R) { r.rows = append(r.rows, rows...) }

// All returns what was added, in its order.
func (r *Rows[R]) All() []R { return r.rows }
