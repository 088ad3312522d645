//! `format`: `%s`, `%I` and `%L`, with positions and widths.

use block::value::DatumRef;

use super::func::Calls;
use super::{Env, Expr, Val, text};
use crate::error::{Error, Result};

/// The first argument is the format, the others are texts.
pub fn call<'a>(args: &'a [Expr], env: &Env<'a>, calls: &mut dyn Calls) -> Result<Val<'a>> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        values.push(arg.eval(env, calls)?);
    }
    let Some(DatumRef::Text(format)) = values.first().map(Val::get) else {
        return Ok(Val::NULL);
    };
    let mut writer = Writer {
        values: &values[1..],
        used: 0,
        rest: format,
        out: String::new(),
    };
    while let Some(at) = writer.rest.find('%') {
        writer.out.push_str(&writer.rest[..at]);
        writer.rest = &writer.rest[at + 1..];
        writer.specifier()?;
    }
    writer.out.push_str(writer.rest);
    Ok(Val::text(writer.out))
}

struct Writer<'f> {
    values: &'f [Val<'f>],
    /// The number of the value that was used last.
    used: usize,
    rest: &'f str,
    out: String,
}

fn unterminated() -> Error {
    Error::new("22023", "unterminated format() type specifier")
        .hint("For a single \"%\" use \"%%\".")
}

impl<'f> Writer<'f> {
    fn peek(&self) -> Result<char> {
        self.rest.chars().next().ok_or_else(unterminated)
    }

    fn skip(&mut self, c: char) {
        self.rest = &self.rest[c.len_utf8()..];
    }

    /// Digits as a number, if there are any.
    fn digits(&mut self) -> Result<Option<i32>> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if digits.is_empty() {
            return Ok(None);
        }
        if rest.is_empty() {
            return Err(unterminated());
        }
        self.rest = rest;
        let number = digits.parse();
        number
            .map(Some)
            .map_err(|_| Error::new("22003", "number is out of range"))
    }

    /// `n$`, or nothing and everything as it was.
    fn position(&mut self) -> Result<Option<usize>> {
        let before = self.rest;
        match self.digits()? {
            Some(number) if self.rest.starts_with('$') => {
                self.skip('$');
                self.peek()?;
                match number {
                    0 => Err(Error::new(
                        "22023",
                        "format specifies argument 0, but arguments are numbered from 1",
                    )),
                    number => Ok(Some(number as usize)),
                }
            }
            _ => {
                self.rest = before;
                Ok(None)
            }
        }
    }

    fn value(&mut self, position: Option<usize>) -> Result<&'f Val<'f>> {
        self.used = position.unwrap_or(self.used + 1);
        let value = self.values.get(self.used - 1);
        value.ok_or_else(|| Error::new("22023", "too few arguments for format()"))
    }

    fn width(&mut self) -> Result<i32> {
        if !self.rest.starts_with('*') {
            return Ok(self.digits()?.unwrap_or(0));
        }
        self.skip('*');
        self.peek()?;
        let position = self.position()?;
        match self.value(position)?.get() {
            DatumRef::Text(number) => crate::pgtype::parse_integer(number),
            _ => Ok(0),
        }
    }

    fn specifier(&mut self) -> Result<()> {
        if self.peek()? == '%' {
            self.skip('%');
            self.out.push('%');
            return Ok(());
        }
        let position = self.position()?;
        let mut left = false;
        while self.peek()? == '-' {
            self.skip('-');
            left = true;
        }
        let width = self.width()?;
        let kind = self.peek()?;
        self.skip(kind);
        if !matches!(kind, 's' | 'I' | 'L') {
            let message = format!("unrecognized format() type specifier \"{kind}\"");
            return Err(Error::new("22023", message).hint("For a single \"%\" use \"%%\"."));
        }
        let shown = match (kind, self.value(position)?.get()) {
            ('s', DatumRef::Text(t)) => t.to_string(),
            ('I', DatumRef::Text(t)) => text::quote_ident(t),
            ('I', _) => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(Error::new("22004", message));
            }
            ('L', DatumRef::Text(t)) => text::quote_literal(t),
            ('L', _) => "NULL".to_string(),
            _ => String::new(),
        };
        self.pad(&shown, width, left || width < 0)
    }

    fn pad(&mut self, shown: &str, width: i32, left: bool) -> Result<()> {
        let width = width.unsigned_abs() as usize;
        if width > text::MAX_RESULT_BYTES {
            return Err(Error::new("22003", "number is out of range"));
        }
        let blanks = " ".repeat(width.saturating_sub(shown.chars().count()));
        match left {
            true => {
                self.out.push_str(shown);
                self.out.push_str(&blanks);
            }
            false => {
                self.out.push_str(&blanks);
                self.out.push_str(shown);
            }
        }
        Ok(())
    }
}
