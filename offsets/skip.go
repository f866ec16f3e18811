package offsets

// Skip notes that there is no message below offset that has not been delivered: markers of transactions have offsets,
// and so has what compaction left nothing of. If all messages are done, offset is what may be committed from now on;
// Skip reports whether it is. While messages are open, and where more was delivered meanwhile, it changes nothing.
func (t *Tracker) Skip(offset int64) bool {
	if t.open > 0 || offset < t.next || offset <= t.commit {
		return false
	}
	t.next, t.commit = offset, offset
	return true
}
