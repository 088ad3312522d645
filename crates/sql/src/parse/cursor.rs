//! DECLARE, FETCH and MOVE.

use sqlparser::tokenizer::Token;

use super::Utility;
use super::tokens::Words;
use crate::error::{Error, Result};

/// Where FETCH and MOVE go from where a cursor stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// So many rows onwards, or all that follow. Zero: the row where the cursor is.
    Forward(Option<u64>),
    /// So many rows back, or all that are before.
    Backward(Option<u64>),
    /// To the row of a number, from 1, or from the end if negative. Zero: before the first.
    Absolute(i64),
    /// To the row that is so many further on, or back.
    Relative(i64),
}

/// What DECLARE says of the rows before the one where the cursor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scroll {
    Yes,
    No,
    Unsaid,
}

/// The options of DECLARE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorOptions {
    pub scroll: Scroll,
    pub insensitive: bool,
    /// FETCH by the simple protocol gives values in binary form.
    pub binary: bool,
    pub hold: bool,
}

pub fn declare(w: &mut Words<'_>) -> Result<Utility> {
    w.bump();
    let name = w.name()?;
    let (mut scroll, mut binary) = (Scroll::Unsaid, false);
    let (mut insensitive, mut asensitive) = (false, false);
    loop {
        let said = if w.accept("binary") {
            binary = true;
            Scroll::Unsaid
        } else if w.accept("insensitive") {
            insensitive = true;
            Scroll::Unsaid
        } else if w.accept("asensitive") {
            asensitive = true;
            Scroll::Unsaid
        } else if w.accept("no scroll") {
            Scroll::No
        } else if w.accept("scroll") {
            Scroll::Yes
        } else {
            break;
        };
        match (scroll, said) {
            (_, Scroll::Unsaid) => {}
            (Scroll::Unsaid, said) => scroll = said,
            (before, said) if before == said => {}
            _ => return Err(contradiction("SCROLL", "NO SCROLL")),
        }
    }
    if insensitive && asensitive {
        return Err(contradiction("ASENSITIVE", "INSENSITIVE"));
    }
    w.expect("cursor")?;
    let hold = w.accept("with hold");
    if !hold {
        w.accept("without hold");
    }
    w.expect("for")?;
    Ok(Utility::Declare {
        name,
        options: CursorOptions {
            scroll,
            insensitive,
            binary,
            hold,
        },
        text: w.rest().to_string(),
    })
}

fn contradiction(one: &str, other: &str) -> Error {
    Error::new("42P11", format!("cannot specify both {one} and {other}"))
}

/// `discard`: it is MOVE.
pub fn fetch(w: &mut Words<'_>, discard: bool) -> Result<Utility> {
    w.bump();
    let direction = direction(w)?;
    let _ = w.accept("from") || w.accept("in");
    Ok(Utility::Fetch {
        cursor: w.name()?,
        direction,
        discard,
    })
}

fn direction(w: &mut Words<'_>) -> Result<Direction> {
    // Where nothing follows, the word is the cursor's name.
    if w.is_last() {
        return Ok(Direction::Forward(Some(1)));
    }
    Ok(if w.accept("next") {
        Direction::Forward(Some(1))
    } else if w.accept("prior") {
        Direction::Backward(Some(1))
    } else if w.accept("first") {
        Direction::Absolute(1)
    } else if w.accept("last") {
        Direction::Absolute(-1)
    } else if w.accept("absolute") {
        Direction::Absolute(w.integer()?)
    } else if w.accept("relative") {
        Direction::Relative(w.integer()?)
    } else if w.accept("all") || w.accept("forward all") {
        Direction::Forward(None)
    } else if w.accept("backward all") {
        Direction::Backward(None)
    } else if w.accept("backward") {
        steps(w, Direction::Backward, Direction::Forward)?
    } else {
        let _ = w.accept("forward");
        steps(w, Direction::Forward, Direction::Backward)?
    })
}

/// A number of rows in a direction, one if none is given; a negative one in the other direction.
fn steps(
    w: &mut Words<'_>,
    there: fn(Option<u64>) -> Direction,
    back: fn(Option<u64>) -> Direction,
) -> Result<Direction> {
    if !matches!(
        w.peek(),
        Some(Token::Number(..) | Token::Minus | Token::Plus)
    ) {
        return Ok(there(Some(1)));
    }
    let rows = w.integer()?;
    let direction = if rows < 0 { back } else { there };
    Ok(direction(Some(rows.unsigned_abs())))
}
