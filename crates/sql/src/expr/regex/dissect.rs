//! Where a pattern matches, and its groups: as PostgreSQL finds them.
//!
//! Of the matches that begin as far to the left as any, the one counts that the whole pattern
//! prefers, the longest or the shortest. Its length is then given to the parts: each part takes as
//! much or as little as it prefers, those that begin earlier first.

use super::parts::{Kind, Part};
use super::program::Text;
use crate::error::Result;

/// A match of the pattern, in characters.
pub(super) struct Match {
    pub start: usize,
    pub end: usize,
    /// Where the groups are, by their numbers; that of the whole is not set.
    pub groups: Vec<Option<(usize, usize)>>,
}

/// The first match that begins there or later.
pub(super) fn find(
    pattern: &Part,
    groups: usize,
    text: &Text,
    from: usize,
) -> Result<Option<Match>> {
    let mut dissection = Dissection {
        text,
        groups: vec![None; groups + 1],
    };
    let mut from = from;
    while let Some(end) = pattern.program.first_end(text, from)? {
        for start in from..=end {
            if let Some(end) = dissection.from(pattern, start)? {
                return Ok(Some(Match {
                    start,
                    end,
                    groups: dissection.groups,
                }));
            }
        }
        from = end + 1;
        if from > text.len() {
            break;
        }
    }
    Ok(None)
}

/// The groups of what the pattern is known to match.
pub(super) fn groups(
    pattern: &Part,
    groups: usize,
    text: &Text,
    start: usize,
    end: usize,
) -> Result<Option<Match>> {
    let mut dissection = Dissection {
        text,
        groups: vec![None; groups + 1],
    };
    let found = dissection.part(pattern, start, end)?;
    Ok(found.then_some(Match {
        start,
        end,
        groups: dissection.groups,
    }))
}

/// Ends in the order in which a part prefers them.
fn in_order(part: &Part, mut ends: Vec<usize>) -> Vec<usize> {
    if !part.marks.short {
        ends.reverse();
    }
    ends
}

struct Dissection<'t> {
    text: &'t Text,
    groups: Vec<Option<(usize, usize)>>,
}

impl Dissection<'_> {
    /// The end of the match of the whole pattern that begins at a place.
    fn from(&mut self, pattern: &Part, start: usize) -> Result<Option<usize>> {
        if !pattern.marks.short {
            let ends = pattern.program.ends(self.text, start, self.text.len())?;
            for end in in_order(pattern, ends) {
                if self.whole(pattern, start, end)? {
                    return Ok(Some(end));
                }
            }
            return Ok(None);
        }
        let mut least = start;
        while let Some(end) = pattern.program.shortest(self.text, start, least)? {
            if self.whole(pattern, start, end)? {
                return Ok(Some(end));
            }
            least = end + 1;
        }
        Ok(None)
    }

    fn whole(&mut self, pattern: &Part, start: usize, end: usize) -> Result<bool> {
        self.groups.fill(None);
        self.part(pattern, start, end)
    }

    /// Whether a part matches there, whose program does. Then its groups are set; if it does not,
    /// they are not.
    fn part(&mut self, part: &Part, start: usize, end: usize) -> Result<bool> {
        let found = match &part.kind {
            Kind::Plain => true,
            Kind::Pair(left, right) => self.pair(left, right, start, end)?,
            Kind::Branches(branches) => self.branches(branches, start, end)?,
            Kind::Around(inner) => self.part(inner, start, end)?,
            Kind::Back { group, least, most } => self.back(*group, (*least, *most), start, end),
            Kind::Repeat { of, least, most } => self.repeat(of, (*least, *most), start, end)?,
        };
        if found && part.group > 0 {
            self.groups[part.group] = Some((start, end));
        }
        Ok(found)
    }

    fn pair(&mut self, left: &Part, right: &Part, start: usize, end: usize) -> Result<bool> {
        for middle in in_order(left, self.ends(left, start, end)?) {
            if !right.program.is_exact(self.text, middle, end)? {
                continue;
            }
            if self.part(left, start, middle)? {
                if self.part(right, middle, end)? {
                    return Ok(true);
                }
                self.clear(left);
            }
        }
        Ok(false)
    }

    fn branches(&mut self, branches: &[Part], start: usize, end: usize) -> Result<bool> {
        for branch in branches {
            if branch.program.is_exact(self.text, start, end)? && self.part(branch, start, end)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The ends of a part's matches; of what refers to a group that is set those that repeat it.
    fn ends(&self, part: &Part, start: usize, limit: usize) -> Result<Vec<usize>> {
        let ends = part.program.ends(self.text, start, limit)?;
        Ok(match part.kind {
            Kind::Back { group, least, most } if self.groups[group].is_some() => ends
                .into_iter()
                .filter(|end| self.back(group, (least, most), start, *end))
                .collect(),
            _ => ends,
        })
    }

    fn back(
        &self,
        group: usize,
        (least, most): (usize, Option<usize>),
        start: usize,
        end: usize,
    ) -> bool {
        let Some((from, to)) = self.groups[group] else {
            return false;
        };
        let wanted = &self.text.chars[from..to];
        let found = &self.text.chars[start..end];
        if wanted.is_empty() {
            return found.is_empty();
        }
        if found.is_empty() {
            return least == 0;
        }
        let times = found.len() / wanted.len();
        found.len().is_multiple_of(wanted.len())
            && times >= least
            && most.is_none_or(|most| times <= most)
            && found
                .chunks(wanted.len())
                .all(|chunk| self.same(chunk, wanted))
    }

    fn same(&self, one: &[char], other: &[char]) -> bool {
        let folded = |c: &char| c.to_lowercase().next();
        match self.text.folds {
            true => one.iter().map(folded).eq(other.iter().map(folded)),
            false => one == other,
        }
    }

    /// A part several times. Empty matches count only as far as they are needed to reach the least
    /// number of times.
    fn repeat(
        &mut self,
        of: &Part,
        (least, most): (usize, Option<usize>),
        start: usize,
        end: usize,
    ) -> Result<bool> {
        if least == 0 && start == end && of.marks.short {
            return Ok(true);
        }
        let fewest = least.max(1);
        let length = end - start;
        let many = most.map_or(length, |most| most.min(length)).max(fewest);
        // Where each match so far ends, behind the start; of each the ends that are left to be
        // tried.
        let mut ends = vec![start];
        let mut left = vec![self.candidates(of, (start, end), (1, fewest, many))?];
        // How many of them are known to be good as they are.
        let mut verified = 0;
        while let Some(candidates) = left.last_mut() {
            let next = candidates.pop();
            let number = left.len();
            ends.truncate(number);
            verified = verified.min(number - 1);
            let Some(next) = next else {
                left.pop();
                continue;
            };
            ends.push(next);
            if next != end {
                if number < many {
                    left.push(self.candidates(of, (next, end), (number + 1, fewest, many))?);
                }
                continue;
            }
            if number < fewest {
                continue;
            }
            while verified < number {
                // Groups are those of the last match.
                self.clear(of);
                if !self.part(of, ends[verified], ends[verified + 1])? {
                    break;
                }
                verified += 1;
            }
            if verified == number {
                return Ok(true);
            }
            left.truncate(verified + 1);
        }
        self.clear(of);
        Ok(least == 0 && start == end)
    }

    /// The ends of the match of that number that begins at a place, the preferred one last.
    fn candidates(
        &self,
        of: &Part,
        (start, end): (usize, usize),
        (number, fewest, many): (usize, usize, usize),
    ) -> Result<Vec<usize>> {
        let mut ends = in_order(of, self.ends(of, start, end)?);
        ends.reverse();
        let may_be_empty = number < fewest && fewest - number >= end - start || start == end;
        ends.retain(|to| (*to != start || may_be_empty) && (number < many || *to == end));
        Ok(ends)
    }

    /// Takes back what a part has set.
    fn clear(&mut self, part: &Part) {
        if part.group > 0 {
            self.groups[part.group] = None;
        }
        match &part.kind {
            Kind::Plain | Kind::Back { .. } => {}
            Kind::Pair(left, right) => {
                self.clear(left);
                self.clear(right);
            }
            Kind::Branches(branches) => branches.iter().for_each(|branch| self.clear(branch)),
            Kind::Around(of) | Kind::Repeat { of, .. } => self.clear(of),
        }
    }
}
