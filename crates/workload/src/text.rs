//! A report as text for a terminal.

use std::fmt::Write;

use crate::document::{Document, Section};

const WIDTH: usize = 100;
/// The widest a column becomes; what is longer is cut in the text, not in HTML.
const WIDEST: usize = 160;

pub fn text(document: &Document) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}\n{}\n",
        document.title,
        "=".repeat(document.title.chars().count())
    );
    let widest = document.head.iter().map(|(n, _)| n.chars().count()).max();
    for (name, value) in &document.head {
        let _ = writeln!(out, "{name:>w$}: {value}", w = widest.unwrap_or(0));
    }
    for note in &document.notes {
        let _ = writeln!(out, "\n{}", folded(&format!("Note: {note}")));
    }
    for s in &document.sections {
        section(s, &mut out);
    }
    out
}

fn section(s: &Section, out: &mut String) {
    let _ = writeln!(
        out,
        "\n{}\n{}",
        s.title,
        "-".repeat(s.title.chars().count())
    );
    let _ = writeln!(out, "{}\n", folded(&s.reading));
    if s.rows.is_empty() {
        let _ = writeln!(out, "(nothing in this span)");
        return;
    }
    let cut = |cell: &str| {
        // What a cell begins with is its depth.
        let depth = cell.len() - cell.trim_start_matches(' ').len();
        let line = cell.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = " ".repeat(depth) + &line;
        match line.chars().count() > WIDEST {
            true => line.chars().take(WIDEST - 3).chain("...".chars()).collect(),
            false => line,
        }
    };
    let names: Vec<String> = s
        .columns
        .iter()
        .map(|c| Section::name(c).to_string())
        .collect();
    let rows: Vec<Vec<String>> = s
        .rows
        .iter()
        .map(|r| r.iter().map(|c| cut(c)).collect())
        .collect();
    let widths: Vec<usize> = (0..names.len())
        .map(|at| {
            let cells = rows.iter().filter_map(|r| r.get(at)).chain([&names[at]]);
            cells.map(|c| c.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut line = |cells: &[String]| {
        let mut text = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let gap = if at > 0 { "  " } else { "" };
            let w = widths[at];
            let _ = match Section::is_left(&s.columns[at]) {
                true => write!(text, "{gap}{cell:<w$}"),
                false => write!(text, "{gap}{cell:>w$}"),
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    };
    line(&names);
    line(&widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>());
    for row in &rows {
        line(row);
    }
}

/// Lines of at most [`WIDTH`] columns.
pub(crate) fn folded(text: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}
