-- name: InsertCharge :exec
insert into charge (order_id, cents) values ($1, $2);
