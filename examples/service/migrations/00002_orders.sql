-- +goose Up
create table orders (
  id        text   primary key,
  reference text   not null,
  cents     bigint not null check (cents > 0)
);

-- no unique constraint on order_id: einmal keeps an order from being charged twice, and the tests would not see it if the table did
create table charge (
  id       bigint generated always as identity primary key,
  order_id text   not null,
  cents    bigint not null
);

-- +goose Down
drop table charge;
drop table orders;
