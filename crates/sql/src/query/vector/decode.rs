//! How stored rows become batches.
//!
//! Only columns that somebody reads are decoded. Where the wanted columns stand at the same place
//! in every row, because those before them have a fixed length and none is NULL, they are read from
//! there, a column at a time. Of other rows without a NULL each value is taken where the walk over
//! the row comes to it.

use std::sync::Arc;

use block::numeric::NumericRef;
use block::row::RowReader;
use block::value::ColType;
use engine::TableDef;

use super::Stop;
use super::batch::{Batch, Column, Type, Values};
use crate::error::Error;

fn damaged(e: block::BlockError) -> Stop {
    Error::new("XX001", format!("damaged row: {e}")).into()
}

/// Makes batches of a table's stored rows.
#[derive(Debug)]
pub struct Decoder {
    table: Arc<TableDef>,
    /// The columns up to the last wanted one, with the wanted ones' place in the batch.
    steps: Vec<(ColType, Option<usize>)>,
    /// Of all columns of the batch, of which a join may set some.
    types: Vec<Type>,
    fixed: Option<Fixed>,
    walk: Option<Walk>,
}

/// What is done, one after the other, with a row that has all the table's columns and no NULL.
#[derive(Debug)]
struct Walk {
    /// Columns of the row, as its first two bytes have them.
    columns: [u8; 2],
    /// Bytes of the bitmap of NULLs, which come next.
    bitmap: usize,
    moves: Vec<Move>,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    /// Over so many bytes.
    Over(usize),
    OverVariable,
    /// A value, to its place in the batch.
    Fixed(ColType, usize),
    Decimal(u16, usize),
    Text(usize),
}

impl Walk {
    fn new(columns: usize, steps: &[(ColType, Option<usize>)], types: &[Type]) -> Option<Walk> {
        let mut moves = Vec::new();
        for (ty, place) in steps {
            let next = match (place, ty.fixed_len()) {
                (None, None) => Move::OverVariable,
                (None, Some(length)) => Move::Over(length),
                (Some(place), Some(_)) => Move::Fixed(*ty, *place),
                (Some(place), None) => match types[*place] {
                    Type::Decimal(scale) => Move::Decimal(scale, *place),
                    Type::Text => Move::Text(*place),
                    _ => return None,
                },
            };
            match (moves.last_mut(), next) {
                (Some(Move::Over(before)), Move::Over(more)) => *before += more,
                _ => moves.push(next),
            }
        }
        Some(Walk {
            columns: u16::try_from(columns).ok()?.to_le_bytes(),
            bitmap: columns.div_ceil(8),
            moves,
        })
    }

    /// Adds a row's values; false, with nothing added, if it is no such row.
    #[inline]
    fn add(&self, row: &[u8], columns: &mut [Column]) -> Result<bool, Stop> {
        let Some((head, rest)) = row.split_at_checked(2 + self.bitmap) else {
            return Ok(false);
        };
        if head[..2] != self.columns || head[2..].iter().any(|b| *b != 0) {
            return Ok(false);
        }
        let mut rest = rest;
        for next in &self.moves {
            match *next {
                Move::Over(length) => {
                    rest = rest.get(length..).ok_or_else(cut_short)?;
                }
                Move::OverVariable => {
                    variable(&mut rest)?;
                }
                Move::Fixed(ty, place) => {
                    let length = ty.fixed_len().unwrap_or(0);
                    let (value, after) = rest.split_at_checked(length).ok_or_else(cut_short)?;
                    columns[place].gather(ty, &[value], 0)?;
                    rest = after;
                }
                Move::Decimal(scale, place) => {
                    let value = NumericRef::from_bytes(variable(&mut rest)?).map_err(damaged)?;
                    match (&mut columns[place].values, value.to_i128()) {
                        (Values::Decimal(v), Some((value, s))) if s == scale => v.push(value),
                        _ => return Err(Stop::Refused("a numeric of another form")),
                    }
                }
                Move::Text(place) => {
                    let text = variable(&mut rest)?;
                    match &mut columns[place].values {
                        Values::Text(v) => v.push(text),
                        _ => return Err(Error::internal("a string in another column").into()),
                    }
                }
            }
        }
        Ok(true)
    }
}

/// The bytes of a value of variable length.
#[inline]
fn variable<'r>(rest: &mut &'r [u8]) -> Result<&'r [u8], Stop> {
    const LONG: u8 = 255;
    let (length, after) = match rest.split_first() {
        Some((&LONG, after)) => {
            let (length, after) = after.split_first_chunk().ok_or_else(cut_short)?;
            (u32::from_le_bytes(*length) as usize, after)
        }
        Some((&length, after)) => (length.into(), after),
        None => return Err(cut_short()),
    };
    let (value, after) = after.split_at_checked(length).ok_or_else(cut_short)?;
    *rest = after;
    Ok(value)
}

fn cut_short() -> Stop {
    Error::new("XX001", "damaged row: it is cut short").into()
}

/// Where the wanted columns are in a row that has all the table's columns and no NULL.
#[derive(Debug)]
struct Fixed {
    /// Columns of the row, as its first two bytes have them.
    columns: [u8; 2],
    /// Bytes of the bitmap of NULLs, which come next.
    bitmap: usize,
    /// Bytes that a row has at least.
    least: usize,
    /// Place of a value in the row, its type, and its place in the batch.
    values: Vec<(usize, ColType, usize)>,
}

impl Fixed {
    fn new(columns: usize, steps: &[(ColType, Option<usize>)]) -> Option<Fixed> {
        let bitmap = columns.div_ceil(8);
        let mut at = 2 + bitmap;
        let mut values = Vec::new();
        for (ty, place) in steps {
            let length = ty.fixed_len()?;
            if let Some(place) = place {
                values.push((at, *ty, *place));
            }
            at += length;
        }
        Some(Fixed {
            columns: u16::try_from(columns).ok()?.to_le_bytes(),
            bitmap,
            least: at,
            values,
        })
    }

    #[inline]
    fn fits(&self, row: &[u8]) -> bool {
        row.len() >= self.least
            && row[..2] == self.columns
            && row[2..2 + self.bitmap].iter().all(|b| *b == 0)
    }
}

impl Decoder {
    /// Of a table the wanted columns, by their number in it, with their types. Numbers beyond its
    /// columns are those that a join sets.
    pub fn new(table: &Arc<TableDef>, wanted: &[(usize, Type)]) -> Decoder {
        let own = wanted.iter().filter(|(at, _)| *at < table.columns.len());
        let last = own.map(|(at, _)| at + 1).max().unwrap_or(0);
        let steps: Vec<_> = table.columns[..last]
            .iter()
            .enumerate()
            .map(|(at, ty)| (*ty, wanted.iter().position(|(w, _)| *w == at)))
            .collect();
        let types: Vec<Type> = wanted.iter().map(|(_, ty)| *ty).collect();
        Decoder {
            fixed: Fixed::new(table.columns.len(), &steps),
            walk: Walk::new(table.columns.len(), &steps, &types),
            table: table.clone(),
            types,
            steps,
        }
    }

    pub fn batch(&self) -> Batch {
        Batch {
            rows: 0,
            columns: self.types.iter().map(|t| Column::new(t.layout())).collect(),
        }
    }

    /// Adds rows to a batch.
    pub fn decode(&self, rows: &[&[u8]], batch: &mut Batch) -> Result<(), Stop> {
        batch.rows += rows.len();
        if self.steps.is_empty() {
            return Ok(());
        }
        match &self.fixed {
            Some(fixed) if rows.iter().all(|r| fixed.fits(r)) => {
                for (at, ty, place) in &fixed.values {
                    batch.columns[*place].gather(*ty, rows, *at)?;
                }
            }
            _ => {
                for row in rows {
                    let walked = match &self.walk {
                        Some(walk) => walk.add(row, &mut batch.columns)?,
                        None => false,
                    };
                    if !walked {
                        self.decode_one(row, batch)?;
                    }
                }
            }
        }
        batch.columns.iter_mut().for_each(Column::settle);
        Ok(())
    }

    fn decode_one(&self, row: &[u8], batch: &mut Batch) -> Result<(), Stop> {
        let mut reader = RowReader::new(row).map_err(damaged)?;
        for (column, (ty, place)) in self.steps.iter().enumerate() {
            match place {
                None => reader.skip(*ty).map_err(damaged)?,
                Some(at) => {
                    let stored = reader.value(*ty).map_err(damaged)?;
                    let value = stored.unwrap_or_else(|| self.table.missing(column));
                    // A NULL before says of each later value that it is none.
                    batch.columns[*at].push_one(value, self.types[*at])?;
                }
            }
        }
        Ok(())
    }
}
