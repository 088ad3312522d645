//! Cutting COPY data, which comes in pieces of any size, into lines; and lines into fields.

use crate::error::{Error, Result};
use crate::parse::{CopyFormat, CopyOptions};

/// Longest line: the limit of a value.
const MAX_LINE_BYTES: usize = 1 << 30;

/// Collects pieces until a line is whole. A line end inside a CSV quote does not end a line.
pub struct Lines {
    format: CopyFormat,
    quote: u8,
    escape: u8,
    buffer: Vec<u8>,
    /// Where the line under way begins, and how far it was looked at.
    start: usize,
    seen: usize,
    in_quote: bool,
    /// The last byte looked at was a CSV escape that is not a quote: the next one is taken as it is.
    escaped: bool,
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
            in_quote: false,
            escaped: false,
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
            CopyFormat::Text => self.buffer[self.seen..]
                .iter()
                .position(|b| *b == b'\n')
                .map(|n| self.seen + n),
            CopyFormat::Csv => self.csv_end(),
        };
        let Some(end) = end else {
            self.seen = self.buffer.len();
            return None;
        };
        let line = (self.start, self.without_return(end));
        self.start = end + 1;
        self.seen = end + 1;
        Some(line)
    }

    /// What is left after the last line end: a last line without one.
    pub fn rest(&mut self) -> Option<(usize, usize)> {
        let end = self.buffer.len();
        if self.start >= end {
            return None;
        }
        let line = (self.start, self.without_return(end));
        self.start = end;
        self.seen = end;
        Some(line)
    }

    pub fn in_quote(&self) -> bool {
        self.in_quote
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    fn without_return(&self, end: usize) -> usize {
        if end > self.start && self.buffer[end - 1] == b'\r' {
            end - 1
        } else {
            end
        }
    }

    fn csv_end(&mut self) -> Option<usize> {
        for at in self.seen..self.buffer.len() {
            let b = self.buffer[at];
            if std::mem::take(&mut self.escaped) {
                continue;
            }
            if self.in_quote && b == self.escape && self.escape != self.quote {
                self.escaped = true;
            } else if b == self.quote {
                self.in_quote = !self.in_quote;
            } else if b == b'\n' && !self.in_quote {
                return Some(at);
            }
        }
        None
    }
}

/// The fields of a line: where each lies in `text`, `None` for NULL. Reused from line to line.
#[derive(Default)]
pub struct Fields {
    pub text: Vec<u8>,
    pub ranges: Vec<Option<(usize, usize)>>,
}

impl Fields {
    pub fn split(&mut self, line: &[u8], options: &CopyOptions) -> Result<()> {
        self.text.clear();
        self.ranges.clear();
        match options.format {
            CopyFormat::Text => self.split_text(line, options),
            CopyFormat::Csv => self.split_csv(line, options),
        }
    }

    fn split_text(&mut self, line: &[u8], options: &CopyOptions) -> Result<()> {
        // Without backslashes, the usual case, fields are what lies between delimiters.
        if !line.contains(&b'\\') {
            let mut start = 0;
            self.text.extend_from_slice(line);
            for piece in line.split(|b| *b == options.delimiter) {
                let end = start + piece.len();
                self.ranges
                    .push((piece != options.null.as_bytes()).then_some((start, end)));
                start = end + 1;
            }
            return Ok(());
        }
        let mut at = 0;
        loop {
            let raw_start = at;
            let from = self.text.len();
            while at < line.len() && line[at] != options.delimiter {
                if line[at] == b'\\' && at + 1 < line.len() {
                    at = self.unescape(line, at + 1);
                } else {
                    self.text.push(line[at]);
                    at += 1;
                }
            }
            let null = &line[raw_start..at] == options.null.as_bytes();
            self.ranges.push((!null).then_some((from, self.text.len())));
            if at >= line.len() {
                return Ok(());
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

    fn split_csv(&mut self, line: &[u8], options: &CopyOptions) -> Result<()> {
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
            let null = !quoted && self.text[from..] == *options.null.as_bytes();
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
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".into() },
            header: false,
            quote: b'"',
            escape: b'"',
        }
    }

    fn parse(text: &str, format: CopyFormat, piece: usize) -> Vec<Vec<Option<String>>> {
        let options = options(format);
        let mut lines = Lines::new(&options);
        let mut fields = Fields::default();
        let mut rows = Vec::new();
        let mut take = |lines: &Lines, (from, to): (usize, usize)| {
            fields.split(&lines.bytes()[from..to], &options).unwrap();
            let value = |r: &Option<(usize, usize)>| {
                r.map(|(a, b)| String::from_utf8(fields.text[a..b].to_vec()).unwrap())
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
}
