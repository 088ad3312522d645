//! What a column may have been meant by a name that no column has: PostgreSQL's hint.

/// Names further from each other than this are not alike.
const MAX_DISTANCE: usize = 3;

/// The nearest columns so far.
struct Nearest<'a> {
    distance: usize,
    /// Table and column of one, or of two that are equally near.
    first: Option<(&'a str, &'a str)>,
    second: Option<(&'a str, &'a str)>,
}

/// The hint for a name with or without its table, among the columns in sight.
pub fn hint<'a>(
    columns: impl Iterator<Item = (&'a str, &'a str)>,
    table: Option<&str>,
    name: &str,
) -> Option<String> {
    let mut nearest = Nearest {
        distance: MAX_DISTANCE + 1,
        first: None,
        second: None,
    };
    for (of, column) in columns.filter(|(_, column)| !column.is_empty()) {
        let between_tables = table.map_or(0, |table| distance(table, of));
        if between_tables > nearest.distance {
            continue;
        }
        let between_names = distance(column, name);
        if between_names <= name.len() / 2 {
            nearest.consider(between_tables + between_names, (of, column));
        }
    }
    let (t, c) = nearest.first?;
    Some(match nearest.second {
        None => format!("Perhaps you meant to reference the column \"{t}.{c}\"."),
        Some((t2, c2)) => format!(
            "Perhaps you meant to reference the column \"{t}.{c}\" or the column \"{t2}.{c2}\"."
        ),
    })
}

impl<'a> Nearest<'a> {
    fn consider(&mut self, distance: usize, column: (&'a str, &'a str)) {
        if distance < self.distance {
            *self = Nearest {
                distance,
                first: Some(column),
                second: None,
            };
        } else if distance == self.distance {
            match (self.first, self.second) {
                // Three that are equally near tell nothing: only nearer ones will.
                (_, Some(_)) => {
                    *self = Nearest {
                        distance: distance.saturating_sub(1),
                        first: None,
                        second: None,
                    };
                }
                (Some(_), None) => self.second = Some(column),
                (None, None) if distance <= MAX_DISTANCE => self.first = Some(column),
                (None, None) => {}
            }
        }
    }
}

/// How many characters must be put in, taken out or changed to make one of the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, c) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(c != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_those_of_postgres() {
        let of = |table, name| {
            let columns = [("t", "amount"), ("t", "number"), ("u", "amounts")];
            hint(columns.into_iter(), table, name)
        };
        let one = |c: &str| {
            Some(format!(
                "Perhaps you meant to reference the column \"{c}\"."
            ))
        };
        assert_eq!(of(None, "amout"), one("t.amount"));
        assert_eq!(of(None, "nothing"), None);
        let both =
            "Perhaps you meant to reference the column \"t.amount\" or the column \"u.amounts\".";
        assert_eq!(of(Some("u"), "amount").as_deref(), Some(both));
        assert_eq!(of(None, "amountx").as_deref(), Some(both));
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
