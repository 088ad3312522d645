//! Lock chains over instances: each sample of a session that waited for a transaction, with the
//! session that had it, and whom that session waited for.

use std::collections::BTreeMap;

use super::Activity;
use crate::document::{Section, number, percent};
use crate::table::{Error, Row};

/// Chains that are shown.
const ROWS: usize = 20;
/// Sessions of a chain that are shown.
const LONGEST: usize = 8;
/// Seconds by which the samples of two instances of the same moment differ at most.
const MOMENT: f64 = 1.0;

/// How often a chain was seen, and for which statement.
#[derive(Default)]
struct Seen {
    weight: f64,
    samples: u32,
    statement: String,
}

pub fn section(of: &Activity<'_>, all: f64) -> Result<Section, Error> {
    let mut s = Section::new(
        "Lock Chains",
        "A session that waited for a row, then the session that had it, and so on over the \
         instances. The last one of a chain is the one to look at: a transaction that has no \
         session here was idle.",
        &[
            "<Chain",
            "Seconds",
            "% Activity",
            "Samples",
            "<Waiter's SQL",
        ],
    );
    let known = Known::of(of)?;
    let mut chains: BTreeMap<String, Seen> = BTreeMap::new();
    for row in of.samples.rows() {
        if row.text("blocking_instance")?.is_empty() {
            continue;
        }
        let seen = chains.entry(known.chain(row)?).or_default();
        seen.weight += row.number("weight")?;
        seen.samples += 1;
        if seen.statement.is_empty() {
            let id = row.text("sql_id")?;
            let text = of.texts.get(id).map_or("", String::as_str);
            seen.statement = format!("{id}: {text}");
        }
    }
    let mut rows: Vec<_> = chains.into_iter().collect();
    rows.sort_by(|a, b| b.1.weight.total_cmp(&a.1.weight));
    for (chain, seen) in rows.into_iter().take(ROWS) {
        s.row([
            chain,
            number(seen.weight, 0),
            percent(seen.weight, all),
            seen.samples.to_string(),
            seen.statement,
        ]);
    }
    Ok(s)
}

/// What is known of transactions.
struct Known<'a> {
    /// Samples by the session's own transaction, in the order of time.
    samples: BTreeMap<&'a str, Vec<(f64, Row<'a>)>>,
    /// Sessions that have a transaction now.
    now: BTreeMap<&'a str, Row<'a>>,
}

impl<'a> Known<'a> {
    fn of(of: &Activity<'a>) -> Result<Known<'a>, Error> {
        let mut known = Known {
            samples: BTreeMap::new(),
            now: BTreeMap::new(),
        };
        for row in of.samples.rows() {
            let own = row.text("transaction_id")?;
            if !own.is_empty() {
                let at = row.number("at")?;
                known.samples.entry(own).or_default().push((at, row));
            }
        }
        for row in of.holders.rows() {
            known.now.insert(row.text("transaction_id")?, row);
        }
        Ok(known)
    }

    /// The sample of a transaction's session at a moment.
    fn at(&self, transaction: &str, at: f64) -> Option<Row<'a>> {
        let all = self.samples.get(transaction)?;
        let near = |(then, _): &&(f64, Row<'a>)| (then - at).abs() <= MOMENT;
        all.iter().find(near).map(|(_, row)| *row)
    }

    fn chain(&self, first: Row<'a>) -> Result<String, Error> {
        let at = first.number("at")?;
        let mut names = vec![session(&first)?];
        let mut row = first;
        while names.len() < LONGEST {
            let (instance, transaction) = (row.text("blocking_instance")?, row.text("p2")?);
            if instance.is_empty() {
                break;
            }
            let Some(holder) = self.at(transaction, at) else {
                names.push(self.idle(&row, instance, transaction)?);
                break;
            };
            let name = session(&holder)?;
            // A deadlock that was about to be found.
            let is_round = names.contains(&name);
            names.push(name);
            if is_round {
                break;
            }
            row = holder;
        }
        Ok(names.join(" > "))
    }

    /// A holder that was not active: it waited for its client.
    fn idle(&self, waiter: &Row<'a>, instance: &str, transaction: &str) -> Result<String, Error> {
        if let Some(row) = self.now.get(transaction) {
            let (sid, program) = (row.text("sid")?, row.text("program")?);
            return Ok(format!("{instance}: {sid} {program} (idle)"));
        }
        match waiter.text("blocking_session")? {
            "" => Ok(format!("transaction {transaction} of instance {instance}")),
            sid => Ok(format!("{instance}: {sid} (idle)")),
        }
    }
}

fn session(row: &Row<'_>) -> Result<String, Error> {
    Ok(format!(
        "{}: {} {}",
        row.text("inst_id")?,
        row.text("session_id")?,
        row.text("program")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    const COLUMNS: [&str; 10] = [
        "at",
        "weight",
        "inst_id",
        "session_id",
        "program",
        "sql_id",
        "blocking_instance",
        "blocking_session",
        "transaction_id",
        "p2",
    ];

    fn chains(samples: &[&[&str]], holders: &[&[&str]]) -> Vec<String> {
        let samples = Table::new("ash", &COLUMNS, samples);
        let columns = ["inst_id", "sid", "program", "status", "transaction_id"];
        let holders = Table::new("session", &columns, holders);
        let of = Activity {
            samples: &samples,
            holders: &holders,
            texts: &BTreeMap::new(),
            from: 0.0,
            to: 10.0,
            head: Vec::new(),
            notes: Vec::new(),
        };
        let section = section(&of, 10.0).unwrap();
        section.rows.iter().map(|r| r[0].clone()).collect()
    }

    #[test]
    fn a_chain_goes_on_over_instances_to_the_one_who_is_idle() {
        let samples: [&[&str]; 3] = [
            &["5.0", "1", "1", "7", "a", "x", "2", "", "70", "90"],
            &["5.4", "1", "2", "9", "b", "y", "1", "", "90", "30"],
            // Later the holder waits for nobody.
            &["8.0", "1", "2", "9", "b", "z", "", "", "90", ""],
        ];
        let found = chains(&samples, &[&["1", "3", "c", "INACTIVE", "30"]]);
        assert_eq!(
            found,
            ["1: 7 a > 2: 9 b > 1: 3 c (idle)", "2: 9 b > 1: 3 c (idle)"]
        );
        let gone = chains(&samples, &[]);
        assert_eq!(gone[1], "2: 9 b > transaction 30 of instance 1");
    }

    #[test]
    fn a_round_ends() {
        let samples: [&[&str]; 2] = [
            &["5", "1", "1", "7", "a", "x", "1", "9", "70", "90"],
            &["5", "1", "1", "9", "b", "y", "1", "7", "90", "70"],
        ];
        assert_eq!(
            chains(&samples, &[]),
            ["1: 7 a > 1: 9 b > 1: 7 a", "1: 9 b > 1: 7 a > 1: 9 b"]
        );
    }
}
