//! Sessions that change definitions beside the others. Tables come and go while sessions of other
//! instances use them, and so do indexes of a table that all write.

use crate::work::{Failed, Lost, Seat, Worker};
use postgres::Client;
use seam::Rng;

/// Tables that all sessions make, fill, empty and drop.
const SIDES: u64 = 2;

pub struct Definitions {
    rng: Rng,
}

impl Definitions {
    pub fn new(seed: u64) -> Definitions {
        Definitions { rng: Rng(seed) }
    }
}

impl Worker for Definitions {
    fn connected(&mut self, _: &mut Client) -> Result<(), postgres::Error> {
        Ok(())
    }

    fn transaction(&mut self, client: &mut Client, seat: &Seat<'_>) -> Result<(), Lost> {
        let side = format!("side_{}", self.rng.below(SIDES));
        let first = seat.work.token() * 100;
        let sql = match self.rng.below(40) {
            0 => "create index if not exists of_amount on transfer (amount)".to_string(),
            1 => "drop index if exists of_amount".to_string(),
            2 => format!("drop table if exists {side}"),
            3 => format!("truncate {side}"),
            4 => format!("create index if not exists of_{side} on {side} (v)"),
            5 => "create sequence if not exists of_sides".to_string(),
            6 => "drop sequence if exists of_sides".to_string(),
            7..12 => format!(
                "create table if not exists {side} (id bigint primary key, v bigint not null)"
            ),
            12..24 => format!(
                "insert into {side} select g, g from generate_series({first}, {}) as t(g)",
                first + self.rng.below(40)
            ),
            24..30 => format!("update {side} set v = v + 1 where id % 7 = {}", first % 7),
            30..34 => format!("delete from {side} where id % 11 = {}", first % 11),
            34..37 => "select nextval('of_sides')".to_string(),
            _ => format!("select count(*), sum(v) from {side}"),
        };
        let done = client.batch_execute(&sql).map(|()| true);
        match &done {
            // Another session has dropped it, or made it at the same moment.
            Err(e) if e.code().is_some_and(|c| is_gone_or_there(c.code())) => {
                seat.judge(Ok(false)).1
            }
            _ => seat.judge(done.map_err(Failed::from)).1,
        }
    }
}

/// Whether an error says that there is no such table or object, or that there is one by that name
/// already.
fn is_gone_or_there(code: &str) -> bool {
    matches!(code, "42P01" | "42704" | "42P07" | "42710")
}
