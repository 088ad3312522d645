//! `to_char` of numbers: a template of digits, a point, groups and signs.
//!
//! The digits are written one by one as the template has places for them. Blanks and zeros go where
//! the number has no digit, and the sign before the first that it has.

mod roman;
mod scientific;

use block::numeric::{Numeric, NumericRef};
use block::value::DatumRef;

use super::arith::ArithOp;
use super::{Val, arith, number};
use crate::error::{Error, Result};
use crate::types::SqlType;

/// Digits that a double is sure of.
const DOUBLE_DIGITS: usize = 15;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Nine,
    Zero,
    Point,
    Group,
    Minus,
    Plus,
    Sign,
    /// `TH`, and `th`.
    Ordinal {
        upper: bool,
    },
    /// `L`, of which there is a blank.
    Currency,
    /// `RN`, and `rn`.
    Roman {
        upper: bool,
    },
    Literal(char),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SignPlace {
    None,
    Before,
    Behind,
}

/// A template, read.
pub(super) struct Template {
    pub(super) nodes: Vec<Node>,
    /// Places before and behind the point.
    pub(super) before: usize,
    pub(super) behind: usize,
    pub(super) has_point: bool,
    /// Blanks are left out.
    pub(super) fill: bool,
    /// The place from which on zeros are written, and the last one of a zero.
    first_zero: Option<usize>,
    last_zero: usize,
    /// Where `S` stands, and behind how many places.
    pub(super) sign: SignPlace,
    places_before_sign: usize,
    pub(super) minus: bool,
    pub(super) plus: bool,
    pub(super) brackets: bool,
    /// Behind `V`: by how many powers of ten the number is multiplied.
    pub(super) shifted: Option<usize>,
    roman: bool,
    /// `EEEE`, which is the last of all patterns.
    exponent: bool,
    has_blank: bool,
}

const PATTERNS: [&str; 18] = [
    "EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", "B", "C", "D", "G", "L", "S", "V", "9",
    "0",
];

fn shifted_point() -> Error {
    syntax("cannot use \"V\" and decimal point together")
}

fn syntax(message: &str) -> Error {
    Error::new("42601", message)
}

/// The pattern at the beginning, whether it is written in capitals, and what follows it.
fn pattern(text: &str) -> Option<(&'static str, bool, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        return Some((".", true, rest));
    }
    if let Some(rest) = text.strip_prefix(',') {
        return Some((",", true, rest));
    }
    PATTERNS.iter().find_map(|p| {
        if let Some(rest) = text.strip_prefix(p) {
            return Some((*p, true, rest));
        }
        let rest = text.strip_prefix(&p.to_ascii_lowercase())?;
        Some((*p, false, rest))
    })
}

impl Template {
    /// A template by which numbers are read.
    pub(super) fn to_read(format: &str) -> Result<Template> {
        let template = Template::read(format)?;
        for (is_there, name) in [(template.exponent, "EEEE"), (template.roman, "RN")] {
            if is_there {
                let message = format!("\"{name}\" not supported for input");
                return Err(Error::new("0A000", message));
            }
        }
        Ok(template)
    }

    fn read(format: &str) -> Result<Template> {
        let mut template = Template {
            nodes: Vec::new(),
            before: 0,
            behind: 0,
            has_point: false,
            fill: false,
            first_zero: None,
            last_zero: 0,
            sign: SignPlace::None,
            places_before_sign: 0,
            minus: false,
            plus: false,
            brackets: false,
            shifted: None,
            roman: false,
            exponent: false,
            has_blank: false,
        };
        let mut rest = format;
        while !rest.is_empty() {
            if let Some((name, upper, after)) = pattern(rest) {
                template.take(name, upper)?;
                rest = after;
                continue;
            }
            let mut chars = rest.chars();
            match chars.next() {
                Some('"') => {
                    while let Some(c) = chars.next() {
                        match c {
                            '"' => break,
                            '\\' => template.literal(chars.next().unwrap_or('\\')),
                            c => template.literal(c),
                        }
                    }
                }
                Some('\\') if chars.as_str().starts_with('"') => {
                    template.literal('"');
                    chars.next();
                }
                Some(c) => template.literal(c),
                None => {}
            }
            rest = chars.as_str();
        }
        Ok(template)
    }

    fn literal(&mut self, c: char) {
        self.nodes.push(Node::Literal(c));
    }

    fn take(&mut self, name: &'static str, upper: bool) -> Result<()> {
        if self.exponent && name != "EEEE" {
            return Err(syntax("\"EEEE\" must be the last pattern used"));
        }
        let signs = self.plus || self.minus || self.brackets;
        match name {
            "9" | "0" if self.brackets => {
                return Err(syntax(&format!("\"{name}\" must be ahead of \"PR\"")));
            }
            "9" => {
                match &mut self.shifted {
                    Some(powers) => *powers += 1,
                    None => *self.places() += 1,
                }
                self.nodes.push(Node::Nine);
            }
            "0" => {
                if self.first_zero.is_none() && !self.has_point {
                    self.first_zero = Some(self.before + 1);
                }
                *self.places() += 1;
                self.last_zero = self.before + self.behind;
                self.nodes.push(Node::Zero);
            }
            "." | "D" if self.has_point => return Err(syntax("multiple decimal points")),
            "." | "D" if self.shifted.is_some() => return Err(shifted_point()),
            "." | "D" => {
                self.has_point = true;
                self.nodes.push(Node::Point);
            }
            "," | "G" => self.nodes.push(Node::Group),
            "FM" => self.fill = true,
            "S" if self.sign != SignPlace::None => return Err(syntax("cannot use \"S\" twice")),
            "S" if signs => {
                let message = "cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together";
                return Err(syntax(message));
            }
            "S" if self.has_point => self.sign = SignPlace::Behind,
            "S" => {
                self.sign = SignPlace::Before;
                self.places_before_sign = self.before;
            }
            "MI" | "PL" | "SG" | "PR" if self.sign != SignPlace::None => {
                return Err(syntax(&format!("cannot use \"S\" and \"{name}\" together")));
            }
            "MI" => {
                self.minus = true;
                self.nodes.push(Node::Minus);
            }
            "PL" => {
                self.plus = true;
                self.nodes.push(Node::Plus);
            }
            "SG" => {
                (self.minus, self.plus) = (true, true);
                self.nodes.push(Node::Sign);
            }
            "PR" if self.plus || self.minus => {
                return Err(syntax(
                    "cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together",
                ));
            }
            "PR" => self.brackets = true,
            "TH" => self.nodes.push(Node::Ordinal { upper }),
            "L" => self.nodes.push(Node::Currency),
            "RN" => {
                self.roman = true;
                self.nodes.push(Node::Roman { upper });
            }
            "V" if self.has_point => return Err(shifted_point()),
            "V" => self.shifted = self.shifted.or(Some(0)),
            "B" => {
                let first = self.before + self.behind == 0 && self.first_zero.is_none();
                self.has_blank |= first;
            }
            "EEEE" if self.exponent => return Err(syntax("cannot use \"EEEE\" twice")),
            "EEEE" if signs || self.mixes_with_exponent() => {
                let detail = "\"EEEE\" may only be used together with digit and decimal point \
                              patterns.";
                let message = "\"EEEE\" is incompatible with other formats";
                return Err(syntax(message).detail(detail));
            }
            "EEEE" => self.exponent = true,
            // `C` and `SP` mean nothing.
            _ => {}
        }
        Ok(())
    }

    fn mixes_with_exponent(&self) -> bool {
        let sign = self.sign != SignPlace::None;
        sign || self.fill || self.has_blank || self.roman || self.shifted.is_some()
    }

    fn places(&mut self) -> &mut usize {
        match self.has_point {
            true => &mut self.behind,
            false => &mut self.before,
        }
    }
}

/// `to_char(number, format)`; of an empty format nothing, where times are NULL.
pub fn call(value: DatumRef<'_>, format: &str) -> Result<Val<'static>> {
    if format.is_empty() {
        return Ok(Val::text(String::new()));
    }
    let mut template = Template::read(format)?;
    if template.exponent {
        let (before, behind) = (template.before, template.behind);
        return Ok(Val::text(scientific::write(value, before, behind)?));
    }
    if template.roman {
        return roman::write(value, &template).map(Val::text);
    }
    let text = match value {
        DatumRef::Float8(f) => double(f, &mut template),
        DatumRef::Numeric(n) => rounded(shifted(n, &mut template)?.borrow(), template.behind),
        other => match super::arith::integer(other) {
            Some(i) => {
                let shifted = shifted_integer(other, i, &mut template)?;
                rounded(number::from_i64(shifted).borrow(), template.behind)
            }
            None => return Err(Error::internal(format!("to_char of {other:?}"))),
        },
    };
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.as_str()),
    };
    Writer::new(template, negative, digits)
        .write()
        .map(Val::text)
}

/// The places behind `V` are places of digits, too.
fn widen(template: &mut Template) -> usize {
    let powers = template.shifted.unwrap_or(0);
    template.before += powers;
    powers
}

/// A number multiplied as `V` says.
fn shifted(n: NumericRef<'_>, template: &mut Template) -> Result<Numeric> {
    if template.shifted.is_none() {
        return Ok(n.to_numeric());
    }
    let powers = widen(template);
    let ten = number::power_of_ten(powers as i64)?;
    number::apply(ArithOp::Mul, n, ten.borrow())
}

/// An integer multiplied as `V` says, which remains one of its type.
fn shifted_integer(value: DatumRef<'_>, n: i64, template: &mut Template) -> Result<i64> {
    let ty = match value {
        DatumRef::Int8(_) => SqlType::Int8,
        _ => SqlType::Int4,
    };
    let power = u32::try_from(widen(template)).ok();
    let power = power.and_then(|p| 10_i64.checked_pow(p));
    let product = power.and_then(|p| n.checked_mul(p));
    let product = product.ok_or_else(|| arith::out_of_range(ty))?;
    arith::narrow(ty, product)?;
    Ok(product)
}

fn rounded(n: NumericRef<'_>, behind: usize) -> String {
    match n.is_nan() || n.is_infinite() {
        true => n.to_string(),
        false => n.to_numeric().round(behind as i32).to_string(),
    }
}

fn double(f: f64, template: &mut Template) -> String {
    if !f.is_finite() {
        return match (f.is_nan(), f > 0.0) {
            (true, _) => "NaN".to_string(),
            (false, true) => "Infinity".to_string(),
            (false, false) => "-Infinity".to_string(),
        };
    }
    let powers = widen(template);
    let f = f * 10_f64.powi(powers as i32);
    let whole = format!("{:.0}", f.abs()).len();
    template.behind = match whole {
        whole if whole >= DOUBLE_DIGITS => 0,
        whole => template.behind.min(DOUBLE_DIGITS - whole),
    };
    format!("{f:.*}", template.behind)
}

/// What makes an ordinal of a number.
fn ordinal(digits: &[u8], upper: bool) -> Result<&'static str> {
    let (teens, last) = match digits {
        [.., b'1', last] => (true, *last),
        [.., last] => (false, *last),
        [] => (false, b' '),
    };
    if !last.is_ascii_digit() {
        let shown = String::from_utf8_lossy(digits);
        let message = format!("\"{shown}\" is not a number");
        return Err(Error::new("22P02", message));
    }
    let endings = match last {
        b'1' if !teens => ["st", "ST"],
        b'2' if !teens => ["nd", "ND"],
        b'3' if !teens => ["rd", "RD"],
        _ => ["th", "TH"],
    };
    Ok(endings[usize::from(upper)])
}

struct Writer {
    template: Template,
    negative: bool,
    digits: Vec<u8>,
    /// The digit that is next, and the place of the template.
    next: usize,
    place: usize,
    /// Places that the number has no digits for.
    blanks: usize,
    /// How many places are counted.
    count: usize,
    /// The last digit that is not left out.
    last: Option<usize>,
    sign_written: bool,
    /// Whether a digit was written by the place before.
    inside: bool,
    out: String,
}

impl Writer {
    fn new(mut template: Template, negative: bool, digits: &str) -> Writer {
        let whole = digits.find('.').unwrap_or(digits.len());
        let blanks = template.before.saturating_sub(whole);
        let digits: Vec<u8> = match whole > template.before {
            true => {
                let hashes = |n: usize| std::iter::repeat_n(b'#', n);
                let point = std::iter::once(b'.');
                hashes(template.before)
                    .chain(point)
                    .chain(hashes(template.behind))
                    .collect()
            }
            false => digits.bytes().collect(),
        };
        let has_own = template.plus || template.minus;
        let sign_written = match has_own {
            true => template.minus,
            false => !negative && template.fill && template.sign == SignPlace::None,
        };
        if !has_own {
            if !negative && template.fill {
                template.brackets = false;
            }
            let at_end = template.places_before_sign == template.before;
            if template.sign == SignPlace::Before && at_end {
                template.sign = SignPlace::Behind;
            }
        }
        let mut writer = Writer {
            count: template.before + template.behind,
            template,
            negative,
            digits,
            next: 0,
            place: 0,
            blanks,
            last: None,
            sign_written,
            inside: false,
            out: String::new(),
        };
        writer.find_last();
        if sign_written || blanks > 0 {
            writer.count = writer.count.wrapping_sub(1);
        }
        writer
    }

    /// Trailing zeros are left out, unless the template says zero.
    fn find_last(&mut self) {
        if !(self.template.fill && self.template.has_point) {
            return;
        }
        let Some(point) = self.digits.iter().position(|d| *d == b'.') else {
            return;
        };
        let behind = self.digits[point..].iter().rposition(|d| *d != b'0');
        let mut last = point + behind.unwrap_or(0);
        if self.template.last_zero > self.blanks {
            let end = self.digits.len() - 1;
            last = last.max(end.min(self.template.last_zero - self.blanks));
        }
        self.last = Some(last);
    }

    fn write(mut self) -> Result<String> {
        for node in std::mem::take(&mut self.template.nodes) {
            let fill = self.template.fill;
            let blank = |out: &mut String| {
                if !fill {
                    out.push(' ');
                }
            };
            match node {
                Node::Nine | Node::Zero | Node::Point => self.digit(node == Node::Zero),
                Node::Group if self.inside => self.out.push(','),
                Node::Group => blank(&mut self.out),
                Node::Minus if self.negative => self.out.push('-'),
                Node::Plus if !self.negative => self.out.push('+'),
                Node::Minus | Node::Plus => blank(&mut self.out),
                Node::Sign => self.out.push(if self.negative { '-' } else { '+' }),
                Node::Literal(c) => self.out.push(c),
                Node::Ordinal { upper } => {
                    let counts = !self.negative && !self.template.has_point;
                    if counts && self.digits.first() != Some(&b'#') {
                        self.out.push_str(ordinal(&self.digits, upper)?);
                    }
                }
                Node::Currency => self.out.push(' '),
                Node::Roman { .. } => {}
            }
        }
        Ok(self.out)
    }

    fn last_is_point(&self) -> bool {
        self.last.is_some_and(|l| self.digits[l] == b'.')
    }

    /// Whether a zero before the point gives way to a blank: `0.1` by `9.9` is ` .1`.
    fn is_zero_before_point(&self) -> bool {
        let first = self.next == 0 && self.digits.first() == Some(&b'0');
        self.template.first_zero.is_none() && first && self.template.behind > 0
    }

    /// The place from which on zeros are written.
    fn zeros_from(&self) -> Option<usize> {
        self.template.first_zero.map(|at| at - 1)
    }

    fn write_sign(&mut self) {
        let begins = self.place >= self.blanks || self.zeros_from() == Some(self.place);
        let gives_way = self.is_zero_before_point() && !self.last_is_point();
        if self.sign_written || !begins || gives_way {
            return;
        }
        match (self.template.sign, self.template.brackets, self.negative) {
            (SignPlace::Behind, ..) => return,
            (SignPlace::Before, _, true) => self.out.push('-'),
            (SignPlace::Before, _, false) => self.out.push('+'),
            (_, true, true) => self.out.push('<'),
            (_, true, false) => self.out.push(' '),
            (_, false, true) => self.out.push('-'),
            (_, false, false) if !self.template.fill => self.out.push(' '),
            _ => {}
        }
        self.sign_written = true;
    }

    fn digit(&mut self, is_zero: bool) {
        self.inside = false;
        self.write_sign();
        let has_digit = self.place >= self.blanks;
        match self.zeros_from() {
            Some(from) if !has_digit && from <= self.place => {
                self.out.push('0');
                self.inside = true;
            }
            _ if !has_digit => {
                if !self.template.fill {
                    self.out.push(' ');
                }
            }
            _ => self.next_digit(is_zero),
        }
        let end = match self.last == Some(self.next) && self.next > 0 {
            true => self.place,
            false => {
                let counted = self.count + usize::from(self.blanks > 0);
                counted + usize::from(self.template.has_point)
            }
        };
        if self.place + 1 == end {
            let behind = self.template.sign == SignPlace::Behind;
            match (self.sign_written && self.template.brackets, behind) {
                (true, _) => self.out.push(if self.negative { '>' } else { ' ' }),
                (false, true) => self.out.push(if self.negative { '-' } else { '+' }),
                _ => {}
            }
        }
        self.place += 1;
    }

    fn next_digit(&mut self, is_zero: bool) {
        let left_out = self.last.is_some_and(|last| self.next > last);
        match self.digits.get(self.next) {
            None => return,
            Some(b'.') => {
                if !self.last_is_point() || self.template.fill {
                    self.out.push('.');
                }
            }
            Some(_) if left_out && !is_zero => {}
            Some(_) if self.is_zero_before_point() => {
                if !self.template.fill {
                    self.out.push(' ');
                } else if self.last_is_point() {
                    self.out.push('0');
                }
            }
            Some(digit) => {
                self.out.push(char::from(*digit));
                self.inside = true;
            }
        }
        self.next += 1;
    }
}
