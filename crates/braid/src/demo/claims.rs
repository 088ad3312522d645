//! Checks of what the demo claims, made on what was read. Each function gives the reason why a
//! claim does not hold.
//!
//! Nothing here knows of connections or instances. So tests can give each check something that is
//! wrong.

use std::collections::{BTreeMap, BTreeSet};

use crate::Failure;

/// Counts the claims that held. The first claim that does not hold ends the demo.
#[derive(Default)]
pub struct Claims {
    pub held: u32,
}

impl Claims {
    /// Makes a claim. `otherwise` says what is the case instead.
    pub fn hold(&mut self, holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
        self.check(if holds { Ok(()) } else { Err(otherwise()) })
    }

    /// Takes the result of a check of this module.
    pub fn check<T>(&mut self, found: Result<T, String>) -> Result<T, Failure> {
        let found = found.map_err(Failure)?;
        self.held += 1;
        Ok(found)
    }
}

/// Checks that the parts of a wait make up the whole. `lost` are the microseconds that rounding
/// down may have taken from their sum.
pub fn parts_add_up(total: i64, parts: &[i64], lost: i64) -> Result<(), String> {
    let sum: i64 = parts.iter().sum();
    match (total - lost..=total).contains(&sum) {
        true => Ok(()),
        false => Err(format!(
            "the parts make {sum} microseconds, the whole wait took {total}"
        )),
    }
}

/// A value that somebody drew from a sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Drawn {
    pub instance: u16,
    pub value: i64,
}

/// Checks that no value was drawn twice, and that each range of `cache` values from `start` on
/// belongs to one instance.
pub fn ranges_are_apart(drawn: &[Drawn], start: i64, cache: i64) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let mut owners: BTreeMap<i64, u16> = BTreeMap::new();
    for d in drawn {
        if d.value < start {
            return Err(format!(
                "{} was drawn from a sequence that starts at {start}",
                d.value
            ));
        }
        if !seen.insert(d.value) {
            return Err(format!("{} was drawn twice", d.value));
        }
        let range = (d.value - start) / cache;
        let owner = *owners.entry(range).or_insert(d.instance);
        if owner != d.instance {
            let first = start + range * cache;
            return Err(format!(
                "both instances drew from {first} to {}: {} was drawn on instance {}",
                first + cache - 1,
                d.value,
                d.instance
            ));
        }
    }
    Ok(())
}

/// Groups values, in the order in which they were drawn, into spans of values that follow each
/// other.
pub fn spans(values: &[i64]) -> Vec<(i64, i64)> {
    let mut spans: Vec<(i64, i64)> = Vec::new();
    for &value in values {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == value => *last = value,
            _ => spans.push((value, value)),
        }
    }
    spans
}

/// A row that a client of the load inserts, in one transaction with changes of two balances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Payment {
    pub client: i32,
    /// The number of the payment among those of its client.
    pub n: i32,
    pub debited: i32,
    pub credited: i32,
    pub amount: i32,
}

impl std::fmt::Display for Payment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Payment {
            client,
            n,
            debited,
            credited,
            amount,
        } = self;
        write!(
            f,
            "payment {n} of client {client} ({amount} from account {debited} to {credited})"
        )
    }
}

/// What the clients know of their payments.
#[derive(Clone, Default, Debug)]
pub struct Recorded {
    /// Payments whose COMMIT was answered.
    pub acknowledged: Vec<Payment>,
    /// Payments whose COMMIT was sent, and whose connection broke before an answer. They may be
    /// there or not.
    pub in_doubt: Vec<Payment>,
    /// Payments whose connection broke before their COMMIT was sent.
    pub never_committed: Vec<Payment>,
}

/// Checks that the table holds every acknowledged payment as it was recorded, and nothing that was
/// never committed. Returns how many payments in doubt are there.
pub fn payments_are_there(recorded: &Recorded, found: &[Payment]) -> Result<usize, String> {
    let key = |p: &Payment| (p.client, p.n);
    let mut there: BTreeMap<(i32, i32), Payment> = BTreeMap::new();
    for p in found {
        if there.insert(key(p), *p).is_some() {
            return Err(format!("{p} is there twice"));
        }
    }
    let mut missing = Vec::new();
    for p in &recorded.acknowledged {
        match there.remove(&key(p)) {
            Some(row) if row == *p => {}
            Some(row) => return Err(format!("{p} was acknowledged, and {row} is there instead")),
            None => missing.push(p),
        }
    }
    if let [first, ..] = missing[..] {
        return Err(format!(
            "{} of {} acknowledged commits are lost; the first is {first}",
            missing.len(),
            recorded.acknowledged.len()
        ));
    }
    for p in &recorded.never_committed {
        if there.contains_key(&key(p)) {
            return Err(format!("{p} was never committed, and is there"));
        }
    }
    let mut came_true = 0;
    for p in &recorded.in_doubt {
        if there.get(&key(p)) == Some(p) {
            there.remove(&key(p));
            came_true += 1;
        }
    }
    match there.values().next() {
        Some(p) => Err(format!("{p} is there, and no client has sent it")),
        None => Ok(came_true),
    }
}

/// Balances by account.
pub type Balances = BTreeMap<i64, i64>;

/// Checks that each balance is what it was before the load, changed by every payment in the table.
/// Then no change was lost, and no transaction was applied in part.
pub fn balances_follow(
    before: &Balances,
    found: &[Payment],
    after: &Balances,
) -> Result<(), String> {
    let mut expected = before.clone();
    for p in found {
        *expected.entry(p.debited.into()).or_default() -= i64::from(p.amount);
        *expected.entry(p.credited.into()).or_default() += i64::from(p.amount);
    }
    let wrong = expected
        .iter()
        .find(|(account, balance)| after.get(account) != Some(balance));
    match wrong {
        Some((account, balance)) => Err(format!(
            "the payments make the balance of account {account} {balance}, and it is {}",
            after
                .get(account)
                .map_or("not there".to_string(), i64::to_string)
        )),
        None if expected.len() != after.len() => Err(format!(
            "{} accounts are expected, {} are there",
            expected.len(),
            after.len()
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(client: i32, n: i32) -> Payment {
        Payment {
            client,
            n,
            debited: 1,
            credited: 2,
            amount: 10 * n,
        }
    }

    fn recorded() -> Recorded {
        Recorded {
            acknowledged: vec![payment(1, 1), payment(1, 2), payment(2, 1)],
            in_doubt: vec![payment(2, 2)],
            never_committed: vec![payment(3, 1)],
        }
    }

    fn says(found: Result<impl std::fmt::Debug, String>, culprit: &str) {
        let why = found.expect_err(culprit);
        assert!(why.contains(culprit), "{why}");
    }

    #[test]
    fn a_claim_that_does_not_hold_ends_the_demo() {
        let mut claims = Claims::default();
        assert!(claims.hold(true, || unreachable!("it holds")).is_ok());
        let failed = claims.hold(false, || "it is otherwise".to_string());
        assert_eq!(
            failed.err().map(|f| f.0).as_deref(),
            Some("it is otherwise")
        );
        assert_eq!(claims.held, 1);
    }

    #[test]
    fn a_lost_commit_is_found_and_named() {
        let all = [payment(1, 1), payment(1, 2), payment(2, 1)];
        assert_eq!(payments_are_there(&recorded(), &all), Ok(0));
        let with_doubt = [&all[..], &[payment(2, 2)]].concat();
        assert_eq!(payments_are_there(&recorded(), &with_doubt), Ok(1));
        says(
            payments_are_there(&recorded(), &all[..2]),
            "1 of 3 acknowledged commits are lost; the first is payment 1 of client 2",
        );
        // There are as many rows as were acknowledged, but one is another row. A count would not
        // show that.
        let same_count = [payment(1, 1), payment(1, 2), payment(2, 2)];
        says(payments_are_there(&recorded(), &same_count), "are lost");
    }

    #[test]
    fn rows_that_should_not_be_there_are_found() {
        let all = recorded().acknowledged;
        let with = |p: Payment| [&all[..], &[p]].concat();
        says(
            payments_are_there(&recorded(), &with(payment(3, 1))),
            "was never committed",
        );
        says(
            payments_are_there(&recorded(), &with(payment(9, 9))),
            "no client has sent",
        );
        says(
            payments_are_there(&recorded(), &with(payment(1, 1))),
            "is there twice",
        );
        let mut changed = all.clone();
        changed[0].amount += 1;
        says(
            payments_are_there(&recorded(), &changed),
            "is there instead",
        );
        let other = Payment {
            amount: 0,
            ..payment(2, 2)
        };
        says(
            payments_are_there(&recorded(), &with(other)),
            "no client has sent",
        );
    }

    #[test]
    fn a_lost_update_shows_in_a_balance() {
        let before = Balances::from([(1, 100), (2, 100), (3, 7)]);
        let found = [payment(1, 1), payment(1, 2)];
        let after = Balances::from([(1, 70), (2, 130), (3, 7)]);
        assert_eq!(balances_follow(&before, &found, &after), Ok(()));
        let lost = Balances::from([(1, 70), (2, 120), (3, 7)]);
        says(
            balances_follow(&before, &found, &lost),
            "account 2 130, and it is 120",
        );
        let gone = Balances::from([(1, 70), (2, 130)]);
        says(
            balances_follow(&before, &found, &gone),
            "account 3 7, and it is not there",
        );
        let more = Balances::from([(1, 70), (2, 130), (3, 7), (4, 0)]);
        says(
            balances_follow(&before, &found, &more),
            "3 accounts are expected, 4 are there",
        );
    }

    #[test]
    fn values_that_are_drawn_twice_or_from_anothers_range_are_found() {
        let drawn = |values: &[(u16, i64)]| -> Vec<Drawn> {
            values
                .iter()
                .map(|&(instance, value)| Drawn { instance, value })
                .collect()
        };
        let fine = drawn(&[(1, 10), (2, 30), (1, 29), (2, 49), (1, 50)]);
        assert_eq!(ranges_are_apart(&fine, 10, 20), Ok(()));
        says(
            ranges_are_apart(&drawn(&[(1, 10), (2, 10)]), 10, 20),
            "10 was drawn twice",
        );
        says(
            ranges_are_apart(&drawn(&[(1, 10), (2, 29)]), 10, 20),
            "from 10 to 29",
        );
        says(ranges_are_apart(&drawn(&[(1, 9)]), 10, 20), "starts at 10");
        assert_eq!(
            spans(&[10, 11, 12, 50, 51, 7]),
            [(10, 12), (50, 51), (7, 7)]
        );
    }

    #[test]
    fn parts_that_do_not_make_the_whole_are_found() {
        assert_eq!(parts_add_up(100, &[60, 40], 0), Ok(()));
        assert_eq!(parts_add_up(100, &[60, 38], 2), Ok(()));
        says(parts_add_up(100, &[60, 38], 1), "make 98");
        says(parts_add_up(100, &[60, 41], 8), "make 101");
    }
}
