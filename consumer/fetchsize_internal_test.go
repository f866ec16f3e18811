package consumer

import "testing"

// The size of a fetch follows the limits and the number of partitions, between what the user set and one small batch.
func TestFetchSize(t *testing.T) {
	t.Parallel()
	limits := Limits{Messages: 100_000, Bytes: 256 << 20}
	for _, test := range []struct {
		partitions int
		limits     Limits
		most, want int32
	}{
		{0, limits, 8 << 20, 4_800_000},
		{1, limits, 8 << 20, 4_800_000},
		{1, limits, 1 << 20, 1 << 20},
		{4, limits, 4 << 20, 1_200_000},
		{40, limits, 4 << 20, 120_000},
		{400, limits, 4 << 20, 16 << 10},
		{400, limits, 1000, 1000},
		{1, Limits{Messages: 1 << 40, Bytes: 1 << 40}, 1<<31 - 1, 1<<31 - 1},
		{10, Limits{Messages: 100_000, Bytes: 4 << 20}, 4 << 20, 26214},
		{10, Limits{Messages: 1, Bytes: 1}, 4 << 20, 16 << 10},
	} {
		if got := fetchSize(test.partitions, test.limits, test.most); got != test.want {
			t.Errorf("%d partitions, %+v, at most %d: %d, want %d", test.partitions, test.limits, test.most, got, test.want)
		}
	}
}
