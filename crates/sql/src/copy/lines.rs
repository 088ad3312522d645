//! Cutting COPY data, which comes in pieces of any size, into lines; and lines into fields.

use memchr::{memchr, memchr_iter};

use crate::error::{Error, Result};
use crate::parse::{CopyFormat, CopyOptions};

/// Longest line: the limit of a value.
const MAX_LINE_BYTES: usize = 1 << 30;

/// Collects pieces until a line is whole. Neither a line end inside a CSV quote nor, in text, one behind a backslash ends a line.
pub struct Lines {
    format: CopyFormat,
    quote: u8,
    escape: u8,
    buffer: Vec<u8>,
    /// Where the line under way begins, and how far it was looked at.
    start: usize,
    seen: usize,
    /// Line ends inside the line under way.
    inside: u64,
    in_quote: bool,
    /// The last byte looked at was a CSV escape that is not a quote: the next one is taken as it is.
    escaped: bool,
    number: u64,
    /// How the first line ended, which all others have to do as well; and whether the line given last did not.
    ends: Option<End>,
    otherwise: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    NewLine,
    ReturnAndNewLine,
}

impl Lines {
    pub fn new(options: &CopyOptions) -> Lines {
        Lines {
            format: options.format,
            quote: options.quote,
            escape: options.escape,
            buffer: Vec::new(),
            start: 0,
            seen: 0,
            inside: 0,
            in_quote: false,
            escaped: false,
            number: 0,
            ends: None,
            otherwise: false,
        }
    }

    pub fn push(&mut self, data: &[u8]) -> Result<()> {
        self.buffer.drain(..self.start);
        self.seen -= self.start;
        self.start = 0;
        if self.buffer.len() + data.len() > MAX_LINE_BYTES {
            return Err(Error::new("54000", "a line of COPY data is too long"));
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    /// The next whole line without its end, as a range of [`Lines::bytes`].
    pub fn next(&mut self) -> Option<(usize, usize)> {
        let end = match self.format {
            CopyFormat::Text => self.text_end(),
            CopyFormat::Csv => self.csv_end(),
        };
        let Some(end) = end else {
            self.seen = self.buffer.len();
            return None;
        };
        Some(self.line(end, end + 1))
    }

    /// What is left after the last line end: a last line without one.
    pub fn rest(&mut self) -> Option<(usize, usize)> {
        let end = self.buffer.len();
        (self.start < end).then(|| self.line(end, end))
    }

    fn line(&mut self, end: usize, next: usize) -> (usize, usize) {
        self.number += 1 + std::mem::take(&mut self.inside);
        let line = (self.start, self.without_return(end));
        if next > end {
            let ends = match line.1 < end {
                true => End::ReturnAndNewLine,
                false => End::NewLine,
            };
            self.otherwise = *self.ends.get_or_insert(ends) != ends;
        }
        (self.start, self.seen) = (next, next);
        line
    }

    /// Number of the line given last, from 1; of one with line ends inside, its last.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn in_quote(&self) -> bool {
        self.in_quote
    }

    /// What is left after the last line end, though a quote in it is still open.
    pub fn unfinished(&mut self) -> Option<(usize, usize)> {
        let end = self.buffer.len();
        self.inside = self.inside.saturating_sub(1);
        (self.start < end).then(|| {
            self.number += 1 + std::mem::take(&mut self.inside);
            (std::mem::replace(&mut self.start, end), end)
        })
    }

    /// Refuses a line that does not end as the first one did: a part of the data was taken for its end, or the other way round.
    pub fn check_end(&self) -> Result<()> {
        if !self.otherwise {
            return Ok(());
        }
        let (what, shown) = match self.ends {
            Some(End::ReturnAndNewLine) => ("newline", "\\n"),
            _ => ("carriage return", "\\r"),
        };
        let (how, hint) = match self.format {
            CopyFormat::Text => ("literal", format!("Use \"{shown}\" to represent {what}.")),
            CopyFormat::Csv => (
                "unquoted",
                format!("Use quoted CSV field to represent {what}."),
            ),
        };
        Err(Error::new("22P04", format!("{how} {what} found in data")).hint(hint))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    fn without_return(&self, end: usize) -> usize {
        if end == self.start || self.buffer[end - 1] != b'\r' {
            return end;
        }
        let line = &self.buffer[self.start..end - 1];
        let backslashes = line.iter().rev().take_while(|b| **b == b'\\').count();
        match self.format {
            // Behind a backslash it is data.
            CopyFormat::Text if backslashes % 2 == 1 => end,
            _ => end - 1,
        }
    }

    fn text_end(&mut self) -> Option<usize> {
        for at in memchr_iter(b'\n', &self.buffer[self.seen..]) {
            let at = self.seen + at;
            let line = &self.buffer[self.start..at];
            let backslashes = line.iter().rev().take_while(|b| **b == b'\\').count();
            if backslashes % 2 == 0 {
                return Some(at);
            }
            self.inside += 1;
        }
        None
    }

    fn csv_end(&mut self) -> Option<usize> {
        for at in self.seen..self.buffer.len() {
            let b = self.buffer[at];
            if b == b'\n' {
                if !self.in_quote {
                    return Some(at);
                }
                self.inside += 1;
            }
            if std::mem::take(&mut self.escaped) {
                continue;
            }
            if self.in_quote && b == self.escape && self.escape != self.quote {
                self.escaped = true;
            } else if b == self.quote {
                self.in_quote = !self.in_quote;
            }
        }
        None
    }
}

/// Which fields, by their place, have another rule for NULL. Empty: none.
#[derive(Default)]
pub struct NullRules {
    /// Also a quoted null string is NULL.
    pub force_null: Vec<bool>,
    /// Not even an unquoted null string is NULL.
    pub force_not_null: Vec<bool>,
}

/// The fields of a line: where each lies, `None` for NULL. Reused from line to line.
#[derive(Default)]
pub struct Fields {
    /// Text of the fields, if it is not simply the line's.
    text: Vec<u8>,
    in_line: bool,
    pub ranges: Vec<Option<(usize, usize)>>,
}

impl Fields {
    /// What the ranges are of, for the line split last.
    pub fn source<'s>(&'s self, line: &'s [u8]) -> &'s [u8] {
        if self.in_line { line } else { &self.text }
    }

    pub fn split(&mut self, line: &[u8], options: &CopyOptions, rules: &NullRules) -> Result<()> {
        self.text.clear();
        self.ranges.clear();
        // Without escapes and quotes, the usual case, fields are what lies between delimiters.
        let special = match options.format {
            CopyFormat::Text => b'\\',
            CopyFormat::Csv => options.quote,
        };
        self.in_line = memchr(special, line).is_none();
        match options.format {
            _ if self.in_line => self.split_plain(line, options, rules),
            CopyFormat::Text => self.split_text(line, options),
            CopyFormat::Csv => return self.split_csv(line, options, rules),
        }
        Ok(())
    }

    fn split_plain(&mut self, line: &[u8], options: &CopyOptions, rules: &NullRules) {
        let null = options.null.as_bytes();
        let mut start = 0;
        let ends = memchr_iter(options.delimiter, line).chain(std::iter::once(line.len()));
        for end in ends {
            let forced = rules.force_not_null.get(self.ranges.len()) == Some(&true);
            let is_null = line[start..end] == *null && !forced;
            self.ranges.push((!is_null).then_some((start, end)));
            start = end + 1;
        }
    }

    fn split_text(&mut self, line: &[u8], options: &CopyOptions) {
        let mut at = 0;
        loop {
            let raw_start = at;
            let from = self.text.len();
            while at < line.len() && line[at] != options.delimiter {
                if line[at] == b'\\' && at + 1 < line.len() {
                    at = self.unescape(line, at + 1);
                } else if line[at] == b'\\' {
                    // The data ends behind it.
                    at += 1;
                } else {
                    self.text.push(line[at]);
                    at += 1;
                }
            }
            let null = &line[raw_start..at] == options.null.as_bytes();
            if null {
                // What it would stand for is no matter.
                self.text.truncate(from);
            }
            self.ranges.push((!null).then_some((from, self.text.len())));
            if at >= line.len() {
                return;
            }
            at += 1;
        }
    }

    /// One escape, after its backslash; returns where the text goes on.
    fn unescape(&mut self, line: &[u8], at: usize) -> usize {
        let digits = |from: usize, most: usize, radix: u32| {
            line[from..]
                .iter()
                .take(most)
                .take_while(|b| (**b as char).is_digit(radix))
                .count()
        };
        let b = match line[at] {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => {
                let n = digits(at, 3, 8);
                let value = line[at..at + n]
                    .iter()
                    .fold(0u32, |v, d| v * 8 + u32::from(d - b'0'));
                self.text.push(value as u8);
                return at + n;
            }
            b'x' if digits(at + 1, 2, 16) > 0 => {
                let n = digits(at + 1, 2, 16);
                let value = line[at + 1..at + 1 + n]
                    .iter()
                    .fold(0, |v, d| v * 16 + (*d as char).to_digit(16).unwrap_or(0));
                self.text.push(value as u8);
                return at + 1 + n;
            }
            other => other,
        };
        self.text.push(b);
        at + 1
    }

    fn split_csv(&mut self, line: &[u8], options: &CopyOptions, rules: &NullRules) -> Result<()> {
        let mut at = 0;
        loop {
            let from = self.text.len();
            let mut quoted = false;
            let mut inside = false;
            while at < line.len() && (inside || line[at] != options.delimiter) {
                let b = line[at];
                let next = line.get(at + 1).copied();
                if inside
                    && b == options.escape
                    && next.is_some_and(|n| n == options.quote || n == options.escape)
                {
                    self.text.extend(next);
                    at += 2;
                    continue;
                }
                if b == options.quote {
                    inside = !inside;
                    quoted = true;
                } else {
                    self.text.push(b);
                }
                at += 1;
            }
            if inside {
                return Err(Error::new("22P04", "unterminated CSV quoted field"));
            }
            let forced = match quoted {
                true => &rules.force_null,
                false => &rules.force_not_null,
            };
            let null = self.text[from..] == *options.null.as_bytes()
                && (forced.get(self.ranges.len()) == Some(&true)) == quoted;
            self.ranges.push((!null).then_some((from, self.text.len())));
            if at >= line.len() {
                return Ok(());
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(format: CopyFormat) -> CopyOptions {
        let csv = format == CopyFormat::Csv;
        CopyOptions {
            format,
            binary: false,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".into() },
            header: Default::default(),
            quote: b'"',
            escape: b'"',
            force_quote: None,
            force_not_null: None,
            force_null: None,
            encoding: None,
            freeze: false,
        }
    }

    fn parse(text: &str, format: CopyFormat, piece: usize) -> Vec<Vec<Option<String>>> {
        let options = options(format);
        let mut lines = Lines::new(&options);
        let mut fields = Fields::default();
        let mut rows = Vec::new();
        let mut take = |lines: &Lines, (from, to): (usize, usize)| {
            let line = &lines.bytes()[from..to];
            fields.split(line, &options, &NullRules::default()).unwrap();
            let value = |r: &Option<(usize, usize)>| {
                r.map(|(a, b)| String::from_utf8(fields.source(line)[a..b].to_vec()).unwrap())
            };
            rows.push(fields.ranges.iter().map(value).collect());
        };
        for chunk in text.as_bytes().chunks(piece) {
            lines.push(chunk).unwrap();
            while let Some(line) = lines.next() {
                take(&lines, line);
            }
        }
        if let Some(line) = lines.rest() {
            take(&lines, line);
        }
        rows
    }

    fn some(s: &str) -> Option<String> {
        Some(s.to_string())
    }

    #[test]
    fn any_cut_gives_the_same_rows() {
        let text = "1\ta\\tb\\\\\t\\N\n2\t\\x41\\101\t\n";
        let csv = "1,\"a,\"\"b\"\"\n c\",\r\n2,x,\"\"\n";
        for piece in 1..text.len() {
            let rows = parse(text, CopyFormat::Text, piece);
            assert_eq!(
                rows,
                vec![
                    vec![some("1"), some("a\tb\\"), None],
                    vec![some("2"), some("AA"), some("")]
                ]
            );
            let rows = parse(csv, CopyFormat::Csv, piece);
            assert_eq!(
                rows,
                vec![
                    vec![some("1"), some("a,\"b\"\n c"), None],
                    vec![some("2"), some("x"), some("")]
                ]
            );
        }
    }
    #[test]
    fn lines_are_counted_as_an_editor_shows_them() {
        for (format, text) in [
            (CopyFormat::Text, "a\\\nb\nc\\\\\nd"),
            (CopyFormat::Csv, "\"a\nb\"\nc\nd"),
        ] {
            let mut lines = Lines::new(&options(format));
            lines.push(text.as_bytes()).unwrap();
            let mut numbers = Vec::new();
            while lines.next().is_some() {
                numbers.push(lines.number());
            }
            lines.rest().unwrap();
            numbers.push(lines.number());
            assert_eq!(numbers, [2, 3, 4], "{text}");
        }
    }

    #[test]
    fn null_rules_of_csv() {
        let rules = NullRules {
            force_null: vec![true, false, false, false],
            force_not_null: vec![false, false, true, false],
        };
        let mut fields = Fields::default();
        for line in ["\"\",\"\",,", ",\"\",,"] {
            fields
                .split(line.as_bytes(), &options(CopyFormat::Csv), &rules)
                .unwrap();
            let nulls: Vec<bool> = fields.ranges.iter().map(Option::is_none).collect();
            assert_eq!(nulls, [true, false, false, true], "{line}");
        }
        // The same rules where nothing is quoted.
        fields
            .split(b",,,", &options(CopyFormat::Csv), &rules)
            .unwrap();
        let nulls: Vec<bool> = fields.ranges.iter().map(Option::is_none).collect();
        assert_eq!(nulls, [true, true, false, true]);
    }
}
