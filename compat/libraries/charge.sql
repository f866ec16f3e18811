create table charge (order_id text not null, cents bigint not null);
