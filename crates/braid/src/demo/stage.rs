//! The output of the demo: headings, statements as a person would type them, and results as small
//! tables.
//!
//! Lines of text are at most [`WIDTH`] columns wide. Colours are used only on a terminal, and not
//! if `NO_COLOR` is set. Nothing is said by colour alone.

use std::cell::Cell;
use std::io::{BufRead as _, IsTerminal as _};

use super::session::Answer;

/// Columns of the demo's own text. A table is as wide as its cells.
const WIDTH: usize = 92;
const INDENT: &str = "  ";

const BOLD: &str = "1";
const CYAN: &str = "36";
const YELLOW: &str = "33";

pub struct Stage {
    in_colour: bool,
    pauses: bool,
    steps: u32,
    /// Whether the last line was empty. Then no other empty line is needed.
    is_apart: Cell<bool>,
}

impl Stage {
    /// A stage. With `pauses` set, it waits for a line on standard input between two steps.
    pub fn new(pauses: bool) -> Stage {
        Stage {
            in_colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            pauses,
            steps: 0,
            is_apart: Cell::new(false),
        }
    }

    /// Prints an empty line, unless the last line was empty.
    fn set_apart(&self) {
        if !self.is_apart.replace(true) {
            say!();
        }
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        match self.in_colour {
            true => format!("\x1b[{colour}m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }

    /// Prints what the demo is about, before the first step.
    pub fn title(&self, title: &str, text: &str) {
        say!("{}", self.painted(BOLD, title));
        say!("{}", self.painted(BOLD, &"=".repeat(title.len())));
        for line in wrapped(text, WIDTH) {
            say!("{line}");
        }
    }

    /// Begins a step with its number, its title and what it does. Waits for the reader first, if
    /// that is wanted.
    pub fn step(&mut self, title: &str, what: &str) {
        if self.pauses && self.steps > 0 {
            self.wait_for_enter();
        }
        self.steps += 1;
        let heading = format!("{}. {title}", self.steps);
        self.is_apart.set(false);
        self.set_apart();
        say!("{}", self.painted(BOLD, &heading));
        say!("{}", self.painted(BOLD, &"-".repeat(heading.len())));
        for line in wrapped(what, WIDTH) {
            say!("{line}");
        }
        self.is_apart.set(false);
        self.set_apart();
    }

    /// The number of the step that is being shown; 0 before the first.
    pub fn at(&self) -> u32 {
        self.steps
    }

    /// Waits for a line. The end of the input (Ctrl-D) ends the demo as Ctrl-C does, and so does
    /// input that cannot be read.
    fn wait_for_enter(&self) {
        say!();
        let what = "-- press Enter to go on, Ctrl-D to end --";
        say!("{}", self.painted(BOLD, what));
        if !matches!(
            std::io::stdin().lock().read_line(&mut String::new()),
            Ok(1..)
        ) {
            if !std::io::stdin().is_terminal() {
                say!("standard input has ended: run it in a terminal, or without --pause");
            }
            super::interrupt();
        }
    }

    /// Prints a statement or command behind the prompt of the place where it runs. Further lines
    /// stand below the first.
    pub fn typed(&self, prompt: &str, statement: &str) {
        self.is_apart.set(false);
        let below = " ".repeat(prompt.len());
        for (n, line) in statement.lines().enumerate() {
            let before = if n == 0 { prompt } else { &below };
            say!("{INDENT}{} {line}", self.painted(CYAN, before));
        }
    }

    /// Prints the result of a statement: its rows, or how many it changed, and how long it took.
    pub fn answer(&self, answer: &Answer) {
        let ms = answer.took.as_secs_f64() * 1e3;
        if answer.columns.is_empty() {
            match answer.changed {
                0 => say!("{INDENT}done ({ms:.1} ms)"),
                n => say!("{INDENT}{n} changed ({ms:.1} ms)"),
            }
            self.set_apart();
            return;
        }
        let shown = |cell: &Option<String>| cell.clone().unwrap_or_default();
        let rows: Vec<Vec<String>> = answer
            .rows
            .iter()
            .map(|row| row.iter().map(shown).collect())
            .collect();
        self.rows(&answer.columns, &rows);
        say!("{INDENT}({ms:.1} ms)");
        self.set_apart();
    }

    /// Prints a table. Numbers are set to the right, everything else to the left.
    pub fn table(&self, columns: &[impl AsRef<str>], rows: &[Vec<String>]) {
        let columns: Vec<String> = columns.iter().map(|c| c.as_ref().to_string()).collect();
        self.rows(&columns, rows);
        self.set_apart();
    }

    fn rows(&self, columns: &[String], rows: &[Vec<String>]) {
        for line in grid(columns, rows) {
            say!("{INDENT}{line}");
        }
    }

    /// Prints one line that a command or the demo itself has said.
    pub fn line(&self, text: &str) {
        self.is_apart.set(false);
        say!("{INDENT}{text}");
    }

    /// Prints what to notice in what was just shown.
    pub fn notice(&self, text: &str) {
        self.set_apart();
        let lines = wrapped(&format!("Notice: {text}"), WIDTH);
        for line in &lines {
            match line.strip_prefix("Notice:") {
                Some(rest) => say!("{}{rest}", self.painted(YELLOW, "Notice:")),
                None => say!("{line}"),
            }
        }
    }
}

/// Breaks words into lines of at most `width` columns. A longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// The lines of a table. A column whose cells are all numbers, or empty, is set to the right.
fn grid(columns: &[String], rows: &[Vec<String>]) -> Vec<String> {
    let cells = |i: usize| rows.iter().filter_map(move |row| row.get(i));
    let is_number =
        |cell: &String| cell.is_empty() || cell.trim_end_matches(['%', ' ']).parse::<f64>().is_ok();
    let layout: Vec<(usize, bool)> = columns
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let widths = cells(i).chain(std::iter::once(name));
            let width = widths.map(|c| c.chars().count()).max().unwrap_or(0);
            (
                width,
                rows.iter().all(|row| row.get(i).is_none_or(is_number)),
            )
        })
        .collect();
    let line = |row: &[String]| {
        let mut line = String::new();
        for ((width, to_the_right), cell) in layout.iter().zip(row) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line += &match to_the_right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            };
        }
        line.trim_end().to_string()
    };
    let rule: Vec<String> = layout.iter().map(|(width, _)| "-".repeat(*width)).collect();
    let head = [line(columns), line(&rule)];
    head.into_iter()
        .chain(rows.iter().map(|r| line(r)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(
            wrapped("a incomprehensible b", 5),
            ["a", "incomprehensible", "b"]
        );
        assert!(wrapped(" \n ", 5).is_empty());
    }

    #[test]
    fn numbers_stand_to_the_right() {
        let columns = ["owner", "balance", "share"].map(str::to_string);
        let rows = [["ann", "-7.5", "4 %"], ["bob", "100", ""]];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|r| r.map(str::to_string).to_vec())
            .collect();
        let expected = [
            "owner  balance  share",
            "-----  -------  -----",
            "ann       -7.5    4 %",
            "bob        100",
        ];
        assert_eq!(grid(&columns, &rows), expected);
    }
}
