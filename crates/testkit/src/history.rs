//! What a history of transactions over lists says about isolation.
//!
//! Each transaction appends tokens of its own to lists, and reads lists. Tokens are never taken
//! away, so a read tells which writes came before it. (The idea is that of Elle: Kingsbury and
//! Alvaro, 2020.)
//!
//! The checker looks for:
//! - tokens that are lost, that are there twice, or that belong to a transaction that was rolled
//!   back (G1a);
//! - reads between two appends of one transaction (G1b);
//! - cycles of write dependencies (G0), and of write and read dependencies (G1c);
//! - cycles with one anti-dependency of a transaction under REPEATABLE READ (G-single, which
//!   includes lost updates and read skew);
//! - reads that miss what had been acknowledged before they began.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

pub type List = i64;
pub type Token = u64;

#[derive(Clone, Debug)]
pub enum Op {
    Append(List, Token),
    /// The tokens that were read, and when the statement began whose snapshot was read.
    Read(List, Vec<Token>, u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The commit was acknowledged at this time.
    Committed(u64),
    RolledBack,
    /// The connection was lost while it committed.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Txn {
    pub repeatable: bool,
    pub ops: Vec<Op>,
    pub outcome: Outcome,
}

/// For each transaction, by number, the transactions that depend on it.
type Graph = Vec<BTreeSet<usize>>;

struct Checker<'a> {
    txns: &'a [Txn],
    /// The content of each list at the end of the history.
    lists: &'a BTreeMap<List, Vec<Token>>,
    /// The transaction that appended a token.
    writer: HashMap<Token, usize>,
    /// The place of a token in its list, if it is there.
    place: HashMap<Token, usize>,
    found: Vec<String>,
}

/// Everything that is wrong with a history, in words. `lists` is what the lists hold at its end.
/// Nothing is found if the history is what both isolation levels promise.
pub fn check(txns: &[Txn], lists: &BTreeMap<List, Vec<Token>>) -> Vec<String> {
    let mut c = Checker {
        txns,
        lists,
        writer: HashMap::new(),
        place: HashMap::new(),
        found: Vec::new(),
    };
    c.tokens();
    c.reads();
    c.real_time();
    c.cycles();
    c.found
}

impl Checker<'_> {
    fn tokens(&mut self) {
        for (t, txn) in self.txns.iter().enumerate() {
            for op in &txn.ops {
                if let Op::Append(_, token) = op {
                    assert!(self.writer.insert(*token, t).is_none(), "tokens are unique");
                }
            }
        }
        for (list, tokens) in self.lists {
            for (at, token) in tokens.iter().enumerate() {
                if self.place.insert(*token, at).is_some() {
                    self.found
                        .push(format!("token {token} is there twice, in list {list}"));
                }
                if !self.writer.contains_key(token) {
                    self.found
                        .push(format!("token {token} of list {list} was never appended"));
                }
            }
        }
        for (&token, &t) in &self.writer {
            match (self.txns[t].outcome, self.place.contains_key(&token)) {
                (Outcome::Committed(_), false) => {
                    self.found.push(format!(
                        "lost: token {token} of transaction {t}, which was acknowledged"
                    ));
                }
                (Outcome::RolledBack, true) => {
                    self.found.push(format!(
                        "G1a: token {token} of transaction {t}, which was rolled back"
                    ));
                }
                _ => {}
            }
        }
    }

    fn happened(&self, t: usize) -> bool {
        let txn = &self.txns[t];
        match txn.outcome {
            Outcome::Committed(_) => true,
            Outcome::RolledBack => false,
            Outcome::Unknown => txn
                .ops
                .iter()
                .any(|op| matches!(op, Op::Append(_, token) if self.place.contains_key(token))),
        }
    }

    /// Each read of a list: the reader, the list, and the place up to which it was read. Tokens of
    /// the reader itself do not count.
    fn external_reads(&self) -> Vec<(usize, List, usize)> {
        let mut all = Vec::new();
        for (t, txn) in self
            .txns
            .iter()
            .enumerate()
            .filter(|(t, _)| self.happened(*t))
        {
            for op in &txn.ops {
                if let Op::Read(list, seen, _) = op {
                    let others = seen.iter().filter(|k| self.writer.get(k) != Some(&t));
                    all.push((t, *list, others.count()));
                }
            }
        }
        all
    }

    fn reads(&mut self) {
        let nothing = Vec::new();
        let mut found = Vec::new();
        for (t, txn) in self.txns.iter().enumerate() {
            for op in &txn.ops {
                let Op::Read(list, seen, _) = op else {
                    continue;
                };
                let others: Vec<Token> = seen
                    .iter()
                    .copied()
                    .filter(|k| self.writer.get(k) != Some(&t))
                    .collect();
                for k in &others {
                    let rolled_back = self.writer.get(k).map(|w| self.txns[*w].outcome);
                    if rolled_back == Some(Outcome::RolledBack) {
                        found.push(format!(
                            "G1a: transaction {t} read token {k} of one that was rolled back"
                        ));
                    }
                }
                let end = self.lists.get(list).unwrap_or(&nothing);
                if self.happened(t) && !end.starts_with(&others) {
                    found.push(format!(
                        "transaction {t} read {others:?} of list {list}, which became {end:?}"
                    ));
                }
                if let Some(&w) = others.last().and_then(|k| self.writer.get(k))
                    && let Some(next) = end.get(others.len())
                    && self.writer.get(next) == Some(&w)
                {
                    found.push(format!(
                        "G1b: transaction {t} read list {list} between two appends of {w}"
                    ));
                }
            }
        }
        self.found.append(&mut found);
    }

    fn real_time(&mut self) {
        // The tokens of each list by the time of their acknowledgement.
        let mut acknowledged: BTreeMap<List, Vec<(u64, Token)>> = BTreeMap::new();
        for txn in self.txns {
            if let Outcome::Committed(at) = txn.outcome {
                for op in &txn.ops {
                    if let Op::Append(list, token) = op {
                        acknowledged.entry(*list).or_default().push((at, *token));
                    }
                }
            }
        }
        acknowledged.values_mut().for_each(|of| of.sort_unstable());
        for (t, txn) in self.txns.iter().enumerate() {
            for op in &txn.ops {
                let Op::Read(list, seen, began) = op else {
                    continue;
                };
                let seen: BTreeSet<&Token> = seen.iter().collect();
                let before = acknowledged.get(list).into_iter().flatten();
                let mut missed = before
                    .take_while(|(at, _)| at < began)
                    .filter(|(_, token)| !seen.contains(token));
                if let Some((at, token)) = missed.next() {
                    self.found.push(format!(
                        "real time: transaction {t} began to read list {list} at {began} and missed token {token}, acknowledged at {at}"
                    ));
                }
            }
        }
    }

    fn cycles(&mut self) {
        let mut ww: Graph = vec![BTreeSet::new(); self.txns.len()];
        for tokens in self.lists.values() {
            for pair in tokens.windows(2) {
                if let [Some(&a), Some(&b)] = [self.writer.get(&pair[0]), self.writer.get(&pair[1])]
                    && a != b
                {
                    ww[a].insert(b);
                }
            }
        }
        if let Some(cycle) = cyclic(&ww, self.txns) {
            self.found.push(format!("G0: {cycle:?}"));
        }
        let mut wr = ww;
        let mut rw = Vec::new();
        for (t, list, upto) in self.external_reads() {
            let Some(tokens) = self.lists.get(&list) else {
                continue;
            };
            if let Some(&w) = upto
                .checked_sub(1)
                .and_then(|at| self.writer.get(tokens.get(at)?))
            {
                wr[w].insert(t);
            }
            if let Some(&w) = tokens.get(upto).and_then(|k| self.writer.get(k))
                && w != t
                && self.txns[t].repeatable
            {
                rw.push((t, w));
            }
        }
        if let Some(cycle) = cyclic(&wr, self.txns) {
            self.found.push(format!("G1c: {cycle:?}"));
            return;
        }
        rw.sort_unstable();
        rw.dedup();
        let order = sorted(&wr, self.txns);
        for (reader, overwriter) in rw {
            if reaches(&wr, &order, overwriter, reader) {
                self.found.push(format!(
                    "G-single: {reader} read before {overwriter} wrote, and saw what came of it"
                ));
            }
        }
    }
}

/// Each transaction's place in an order that all edges follow. Where the edges leave a choice, the
/// order follows the time, so that few transactions lie between two that depend on each other. A
/// transaction on a cycle, or behind one, has the place `usize::MAX`.
fn sorted(graph: &Graph, txns: &[Txn]) -> Vec<usize> {
    let time = |t: usize| match txns[t].outcome {
        Outcome::Committed(at) => at,
        _ => txns[t]
            .ops
            .iter()
            .map(|op| match op {
                Op::Read(_, _, began) => *began,
                Op::Append(..) => 0,
            })
            .max()
            .unwrap_or_default(),
    };
    let mut incoming = vec![0; graph.len()];
    graph.iter().flatten().for_each(|&to| incoming[to] += 1);
    let mut ready: BinaryHeap<Reverse<(u64, usize)>> = (0..graph.len())
        .filter(|&t| incoming[t] == 0)
        .map(|t| Reverse((time(t), t)))
        .collect();
    let mut order = vec![usize::MAX; graph.len()];
    let mut next = 0;
    while let Some(Reverse((_, t))) = ready.pop() {
        order[t] = next;
        next += 1;
        for &to in &graph[t] {
            incoming[to] -= 1;
            if incoming[to] == 0 {
                ready.push(Reverse((time(to), to)));
            }
        }
    }
    order
}

/// Some of the transactions that stand on cycles or between them, if there is a cycle. They are
/// what is left when the transactions without a predecessor are taken away until there are none,
/// and then those without a successor.
fn cyclic(graph: &Graph, txns: &[Txn]) -> Option<Vec<usize>> {
    let order = sorted(graph, txns);
    let mut left: BTreeSet<usize> = (0..graph.len())
        .filter(|&t| order[t] == usize::MAX)
        .collect();
    loop {
        let before = left.len();
        let ends = |t: &usize| graph[*t].iter().any(|to| left.contains(to));
        left = left.iter().copied().filter(ends).collect();
        if left.len() == before {
            return (before > 0).then(|| left.into_iter().take(12).collect());
        }
    }
}

/// Whether a path leads from one transaction to another. `order` is that of [`sorted`], for a graph
/// without cycles.
fn reaches(graph: &Graph, order: &[usize], from: usize, to: usize) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut todo = vec![from];
    while let Some(t) = todo.pop() {
        if t == to {
            return true;
        }
        for &next in graph[t].iter().filter(|&&n| order[n] <= order[to]) {
            if seen.insert(next) {
                todo.push(next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(repeatable: bool, outcome: Outcome, ops: &[Op]) -> Txn {
        Txn {
            repeatable,
            ops: ops.to_vec(),
            outcome,
        }
    }
    fn a(list: List, token: Token) -> Op {
        Op::Append(list, token)
    }
    fn r(list: List, seen: &[Token]) -> Op {
        Op::Read(list, seen.to_vec(), 0)
    }
    fn found(txns: &[Txn], lists: &[(List, &[Token])]) -> String {
        let lists = lists.iter().map(|(k, v)| (*k, v.to_vec())).collect();
        check(txns, &lists).join("\n")
    }
    const OK: Outcome = Outcome::Committed(10);

    #[test]
    fn a_serial_history_is_fine() {
        let txns = [
            txn(true, OK, &[a(1, 1), r(1, &[1]), a(2, 2)]),
            txn(true, OK, &[r(1, &[1]), a(1, 3), r(2, &[2])]),
            txn(false, Outcome::RolledBack, &[r(1, &[1, 3]), a(1, 4)]),
            txn(false, Outcome::Unknown, &[a(2, 5)]),
            txn(false, Outcome::Unknown, &[a(2, 6)]),
        ];
        assert_eq!(found(&txns, &[(1, &[1, 3]), (2, &[2, 6])]), "");
    }

    #[test]
    fn tokens_lost_doubled_and_of_the_rolled_back() {
        let txns = [
            txn(false, OK, &[a(1, 1)]),
            txn(false, OK, &[a(1, 2)]),
            txn(false, Outcome::RolledBack, &[a(1, 3)]),
        ];
        let said = found(&txns, &[(1, &[1, 1, 3])]);
        for what in ["twice", "lost: token 2", "G1a: token 3"] {
            assert!(said.contains(what), "{said}");
        }
        let reader = [txns[2].clone(), txn(false, OK, &[r(1, &[3])])];
        assert!(found(&reader, &[(1, &[])]).contains("G1a: transaction 1"));
    }

    #[test]
    fn reads_of_half_a_transaction() {
        let txns = [
            txn(false, OK, &[a(1, 1), a(1, 2)]),
            txn(false, OK, &[r(1, &[1])]),
        ];
        assert!(found(&txns, &[(1, &[1, 2])]).contains("G1b"));
    }

    #[test]
    fn cycles_of_writes_and_of_reads() {
        let txns = [
            txn(false, OK, &[a(1, 1), a(2, 2)]),
            txn(false, OK, &[a(1, 3), a(2, 4)]),
        ];
        assert!(found(&txns, &[(1, &[1, 3]), (2, &[4, 2])]).contains("G0"));
        let txns = [
            txn(false, OK, &[a(1, 1), r(2, &[2])]),
            txn(false, OK, &[a(2, 2), r(1, &[1])]),
        ];
        assert!(found(&txns, &[(1, &[1]), (2, &[2])]).contains("G1c"));
    }

    /// Read skew and a lost update: wrong for a snapshot, right for READ COMMITTED.
    #[test]
    fn one_anti_dependency() {
        for level in [true, false] {
            let skew = [
                txn(false, OK, &[a(1, 1), a(2, 2)]),
                txn(level, OK, &[r(1, &[]), r(2, &[2])]),
            ];
            let said = found(&skew, &[(1, &[1]), (2, &[2])]);
            assert_eq!(said.contains("G-single"), level, "{said}");
            let lost = [
                txn(level, OK, &[r(1, &[]), a(1, 2)]),
                txn(level, OK, &[r(1, &[]), a(1, 1)]),
            ];
            let said = found(&lost, &[(1, &[1, 2])]);
            assert_eq!(said.contains("G-single"), level, "{said}");
        }
        let write_skew = [
            txn(true, OK, &[r(1, &[]), a(2, 2)]),
            txn(true, OK, &[r(2, &[]), a(1, 1)]),
        ];
        assert_eq!(found(&write_skew, &[(1, &[1]), (2, &[2])]), "");
    }

    #[test]
    fn what_was_acknowledged_before_is_seen() {
        let read = |began| Op::Read(1, vec![], began);
        let writer = txn(false, OK, &[a(1, 1)]);
        let early = [writer.clone(), txn(false, OK, &[read(10)])];
        assert_eq!(found(&early, &[(1, &[1])]), "");
        let late = [writer, txn(false, Outcome::RolledBack, &[read(11)])];
        assert!(found(&late, &[(1, &[1])]).contains("real time"));
    }
}
