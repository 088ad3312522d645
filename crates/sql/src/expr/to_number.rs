//! `to_number`: a number read by a template of `to_char`.
//!
//! Each digit, point or sign of the template takes what is next of the text, be it one or not;
//! other characters of the template pass over one of the text.

use block::value::Datum;

use super::arith::ArithOp;
use super::to_char_number::{Node, SignPlace, Template};
use super::{Val, number};
use crate::error::Result;
use crate::pgtype;
use crate::types::SqlType;

/// What PostgreSQL adds to modifiers of types.
const MODIFIER_OFFSET: i32 = 4;

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    template: Template,
    sign: Option<u8>,
    digits: String,
    before: usize,
    behind: usize,
    has_point: bool,
}

/// `to_number(text, format)`; NULL for an empty format.
pub fn call(text: &str, format: &str) -> Result<Val<'static>> {
    if format.is_empty() {
        return Ok(Val::NULL);
    }
    let mut template = Template::to_read(format)?;
    let nodes = std::mem::take(&mut template.nodes);
    let places = template.before;
    let mut reader = Reader {
        text: text.as_bytes(),
        at: 0,
        template,
        sign: None,
        digits: String::new(),
        before: 0,
        behind: 0,
        has_point: false,
    };
    for node in nodes {
        if reader.peek().is_none() {
            break;
        }
        reader.node(node);
    }
    let sign = reader.sign.map_or(' ', char::from);
    let digits = reader.digits.strip_suffix('.').unwrap_or(&reader.digits);
    let number = Datum::Numeric(pgtype::parse_numeric(&format!("{sign}{digits}"))?);
    let powers = reader.template.shifted.unwrap_or(0);
    let precision = (places + powers + reader.behind) as i32;
    let typmod = ((precision << 16) | reader.behind as i32) + MODIFIER_OFFSET;
    let number = pgtype::apply_typmod(SqlType::Numeric, typmod, number, false)?;
    match (reader.template.shifted, number) {
        (Some(powers), Datum::Numeric(n)) => {
            let part = number::power_of_ten(-(powers as i64))?;
            let shifted = number::apply(ArithOp::Mul, n.borrow(), part.borrow())?;
            Ok(Val::Own(Datum::Numeric(shifted)))
        }
        (_, number) => Ok(Val::Own(number)),
    }
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn is_digit_at(&self, at: usize) -> bool {
        self.text.get(at).is_some_and(u8::is_ascii_digit)
    }

    /// The next character, of any length.
    fn pass(&mut self) {
        self.at += 1;
        while self.peek().is_some_and(|b| b & 0xc0 == 0x80) {
            self.at += 1;
        }
    }

    /// So many characters, up to one that may be of the number.
    fn pass_others(&mut self, count: usize) {
        for _ in 0..count {
            match self.peek() {
                Some(b) if !b"0123456789.,+-".contains(&b) => self.pass(),
                _ => break,
            }
        }
    }

    fn node(&mut self, node: Node) {
        match node {
            Node::Nine | Node::Zero | Node::Point => {
                self.part(node != Node::Point);
                self.at += 1;
            }
            Node::Group if !self.template.fill && self.peek() == Some(b',') => self.at += 1,
            Node::Group => {}
            Node::Minus => self.sign_or_pass(b"-"),
            Node::Plus => self.sign_or_pass(b"+"),
            Node::Sign => self.sign_or_pass(b"-+"),
            // Of a number with a point there are no ordinals.
            Node::Ordinal { .. } if self.template.has_point => {}
            Node::Ordinal { .. } => self.pass_others(2),
            Node::Roman { .. } => {}
            Node::Currency => self.pass_others(1),
            Node::Literal(_) => self.pass(),
        }
    }

    fn sign_or_pass(&mut self, signs: &[u8]) {
        match self.peek() {
            Some(sign) if signs.contains(&sign) => {
                self.sign = Some(sign);
                self.at += 1;
            }
            _ => self.pass_others(1),
        }
    }

    /// A digit or a point, with the sign before the first of them, or behind the last.
    fn part(&mut self, is_digit: bool) {
        if self.peek() == Some(b' ') {
            self.at += 1;
        }
        let begins = self.before + self.behind == 0;
        if is_digit && begins && self.sign.is_none() {
            self.sign_before();
        }
        let mut is_read = false;
        match self.peek() {
            None => return,
            Some(digit) if digit.is_ascii_digit() => {
                if self.has_point && self.behind == self.template.behind {
                    return;
                }
                self.digits.push(char::from(digit));
                match self.has_point {
                    true => self.behind += 1,
                    false => self.before += 1,
                }
                is_read = true;
            }
            Some(b'.') if self.template.has_point && !self.has_point => {
                self.digits.push('.');
                self.has_point = true;
                is_read = true;
            }
            Some(_) => {}
        }
        if self.sign.is_none() && self.before + self.behind > 0 {
            self.sign_behind(is_read);
        }
    }

    fn sign_before(&mut self) {
        match self.peek() {
            Some(b'-') => self.take_sign(b'-'),
            Some(b'<') if self.template.brackets => self.take_sign(b'-'),
            Some(b'+') => self.take_sign(b'+'),
            _ => {}
        }
    }

    fn take_sign(&mut self, sign: u8) {
        self.sign = Some(sign);
        self.at += 1;
    }

    /// `S` is anchored to the last digit; where another sign stands in the template cannot be told.
    fn sign_behind(&mut self, is_read: bool) {
        let anchored = self.template.sign != SignPlace::None;
        let next = self.text.get(self.at + 1).copied();
        match (anchored, is_read) {
            (true, true) if !self.is_digit_at(self.at + 1) => {
                if let Some(sign @ (b'-' | b'+')) = next {
                    self.take_sign(sign);
                }
            }
            (false, false) if self.template.plus || self.template.minus => {
                if let Some(sign @ (b'-' | b'+')) = self.peek() {
                    self.sign = Some(sign);
                }
            }
            _ => {}
        }
    }
}
