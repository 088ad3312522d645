//! Checks a whole tree: every block by itself, every level's chain of fences and links, and that
//! parents lead where they should.

use seam::{HashMap, HashSet};

use block::Dba;
use block::index::{IndexBlock, MetaBlock};

use super::{Store, Tree};
use crate::Result;

/// The number of blocks on one level above which they are taken for a ring of links.
const MAX_LEVEL_BLOCKS: usize = 1 << 31;

/// The findings of a tree's check.
#[derive(Clone, Debug, Default)]
pub struct TreeReport {
    /// The inconsistencies. Empty for a sound tree.
    pub problems: Vec<String>,
    /// States that a crash leaves behind and that do no harm: splits without separator, dead blocks
    /// still linked.
    pub notes: Vec<String>,
    pub height: u16,
    pub leaves: usize,
    pub blocks: usize,
    /// The number of entries, delete-marked ones included.
    pub entries: usize,
    pub marked: usize,
    pub empty_leaves: usize,
    pub free_blocks: usize,
    /// The blocks met in the tree, until the list of freed blocks has been compared with them.
    linked: HashSet<Dba>,
}

/// What the level above says of a level's blocks: the separator by child.
type Expected = HashMap<Dba, Vec<u8>>;

impl<S: Store> Tree<S> {
    /// Checks and reports everything that does not need the table. An error means that a block
    /// cannot be read. The check is meant for a tree at rest: it may report concurrent changes as
    /// problems.
    pub fn verify(
        &self,
        mut each_entry: impl FnMut(&[u8], block::RowId, Option<block::Stamp>),
    ) -> Result<TreeReport> {
        let mut report = TreeReport::default();
        let mut leftmost = self.root();
        let mut expected = Expected::from_iter([(self.root(), Vec::new())]);
        let mut level = {
            let root = self.store.read(self.root())?;
            match IndexBlock::new(&root) {
                Some(v) => v.level(),
                None => {
                    report
                        .problems
                        .push(format!("root {} is no index block", self.root()));
                    return Ok(report);
                }
            }
        };
        report.height = level + 1;
        loop {
            let (first_child, children) =
                self.verify_level(leftmost, level, expected, &mut report, &mut each_entry)?;
            if level == 0 {
                break;
            }
            let Some(child) = first_child else {
                report
                    .problems
                    .push(format!("level {level} has no children"));
                break;
            };
            (leftmost, expected, level) = (child, children, level - 1);
        }
        self.verify_free_list(&mut report)?;
        Ok(report)
    }

    /// Checks that a block on the list of freed blocks is dead, in no level, and on the list once.
    fn verify_free_list(&self, report: &mut TreeReport) -> Result<()> {
        let free: Vec<Dba> = {
            let guard = self.store.read(self.free_list())?;
            let list = MetaBlock(&guard);
            (0..list.count()).map(|i| list.get(i).dba).collect()
        };
        report.free_blocks = free.len();
        let mut listed = HashSet::default();
        for dba in free {
            if !listed.insert(dba) {
                report
                    .problems
                    .push(format!("block {dba} is on the list of freed blocks twice"));
            }
            if report.linked.contains(&dba) {
                report.problems.push(format!(
                    "block {dba} is on the list of freed blocks and in the tree"
                ));
            }
            let guard = self.store.read(dba)?;
            let dead = IndexBlock::new(&guard).is_some_and(|v| v.is_dead());
            if !dead || guard.object() != self.object {
                report.problems.push(format!(
                    "block {dba} is on the list of freed blocks and not dead"
                ));
            }
        }
        report.linked.clear();
        Ok(())
    }

    /// Walks one level from left to right. Returns the level's first child, and what it says of the
    /// level below.
    fn verify_level(
        &self,
        leftmost: Dba,
        level: u16,
        mut expected: Expected,
        report: &mut TreeReport,
        each_entry: &mut impl FnMut(&[u8], block::RowId, Option<block::Stamp>),
    ) -> Result<(Option<Dba>, Expected)> {
        let (mut children, mut first_child) = (Expected::default(), None);
        let (mut dba, mut fence, mut seen) = (leftmost, Some(Vec::new()), 0);
        let mut after_dead = false;
        while !dba.is_none() && seen < MAX_LEVEL_BLOCKS {
            seen += 1;
            report.blocks += 1;
            report.linked.insert(dba);
            let guard = self.store.read(dba)?;
            let Some(v) = self.view(&guard, level) else {
                report.problems.push(format!(
                    "block {dba} is no block of level {level} of object {}",
                    self.object.0
                ));
                break;
            };
            if let Err(e) = v.check() {
                report.problems.push(e.to_string());
            }
            if v.is_dead() {
                report
                    .notes
                    .push(format!("dead block {dba} is still linked on level {level}"));
                expected.remove(&dba);
                (dba, after_dead) = (v.right(), true);
                continue;
            }
            match &fence {
                Some(fence) if v.low() == fence => {}
                Some(fence) if v.low() > &fence[..] && after_dead => {
                    report.notes.push(format!(
                        "block {dba} has not taken over the range of its dead neighbour"
                    ));
                }
                _ => report.problems.push(format!(
                    "block {dba}: low fence is not the high fence of its left neighbour"
                )),
            }
            match expected.remove(&dba) {
                Some(separator) if separator == v.low() => {}
                Some(separator) if &separator[..] > v.low() && after_dead => {
                    report.notes.push(format!(
                        "the parent of block {dba} still leads to its dead neighbour"
                    ));
                }
                Some(_) => report.problems.push(format!(
                    "block {dba}: low fence is not the separator in its parent"
                )),
                None => report.notes.push(format!(
                    "block {dba} of level {level} is in no parent: its split is incomplete"
                )),
            }
            if level == 0 {
                report.leaves += 1;
                report.entries += v.count();
                report.empty_leaves += usize::from(v.count() == 0);
            }
            for i in 0..v.count() {
                let e = v.entry(i);
                if level == 0 {
                    report.marked += usize::from(e.marked().is_some());
                    let full = v.key(i);
                    let columns = &full[..full.len().saturating_sub(block::index::ROW_ID_LEN)];
                    each_entry(columns, v.row_id(i), e.marked());
                } else {
                    first_child = first_child.or(Some(e.child()));
                    if children.insert(e.child(), v.key(i)).is_some() {
                        report.problems.push(format!(
                            "block {dba}: child {} stands in its level twice",
                            e.child()
                        ));
                    }
                }
            }
            after_dead = false;
            fence = v.high().map(<[u8]>::to_vec);
            dba = v.right();
        }
        if fence.is_some() && report.problems.is_empty() {
            report
                .problems
                .push(format!("level {level} ends before the greatest key"));
        }
        for child in expected.keys() {
            report.problems.push(format!(
                "block {child} is in a parent but not linked on level {level}"
            ));
        }
        Ok((first_child, children))
    }
}
