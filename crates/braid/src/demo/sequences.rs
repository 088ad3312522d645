//! The demo's step about sequences. Each instance draws from a range of its own, or all draw in one
//! order.

use super::Demo;
use super::claims::{Drawn, ranges_are_apart, spans};
use super::session::Session;
use crate::Failure;

const START: i64 = 10;
const CACHE: i64 = 20;
/// Draws of each instance. They are more than a range, so each instance needs a second range.
const DRAWS: usize = 25;

fn next(session: &mut Session, sequence: &str) -> Result<Drawn, Failure> {
    let value = session.ask(&format!("select nextval('{sequence}') as value"))?;
    Ok(Drawn {
        instance: session.instance,
        value: value.number(0, "value")?,
    })
}

/// Values as people write them.
fn shown(values: &[i64]) -> String {
    let span = |(first, last): &(i64, i64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    spans(values)
        .iter()
        .map(span)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Draws on both instances by turns, from a sequence with ranges and from one in order.
pub fn draw(demo: &mut Demo) -> Result<(), Failure> {
    demo.stage.step(
        "Draw sequence values on both instances",
        "With CACHE 20 an instance takes a range of 20 values at a time and gives them out without \
         asking anybody. With ORDER both instances draw in one order, one value at a time.",
    );
    let (mut one, mut two) = (demo.cluster.session(1)?, demo.cluster.session(2)?);
    let create =
        format!("create sequence ticket start with {START} minvalue {START} cache {CACHE}");
    demo.do_it(&mut one, &create)?;
    let sql = "select nextval('ticket');";
    demo.stage.typed(
        "both instances, by turns>",
        &format!("{sql}   -- {DRAWS} times each"),
    );
    let mut drawn = Vec::new();
    for _ in 0..DRAWS {
        drawn.push(next(&mut one, "ticket")?);
        drawn.push(next(&mut two, "ticket")?);
    }
    let of = |instance: u16| -> Vec<i64> {
        drawn
            .iter()
            .filter(|d| d.instance == instance)
            .map(|d| d.value)
            .collect()
    };
    let rows = [1, 2].map(|k| vec![format!("instance {k}"), shown(&of(k))]);
    demo.stage.table(&["drawn on", "values"], &rows);
    demo.claims.check(ranges_are_apart(&drawn, START, CACHE))?;

    demo.do_it(&mut one, "create sequence receipt nocache order")?;
    let sql = "select nextval('receipt');";
    demo.stage.typed(
        "both instances, by turns>",
        &format!("{sql}   -- 3 times each"),
    );
    let mut ordered = Vec::new();
    for _ in 0..3 {
        ordered.push(next(&mut one, "receipt")?.value);
        ordered.push(next(&mut two, "receipt")?.value);
    }
    let text: Vec<String> = ordered.iter().map(i64::to_string).collect();
    demo.stage
        .line(&format!("drawn, in this order: {}", text.join(", ")));
    demo.claims.hold(ordered == [1, 2, 3, 4, 5, 6], || {
        format!("the ordered sequence gave {ordered:?}")
    })?;
    demo.stage.notice(&format!(
        "{} values of ticket, none of them drawn twice, and no range of {CACHE} served both \
         instances. Ranges save a message for each value, but a later draw may get a smaller value \
         than an earlier one. ORDER is for applications that need the values in the order of time.",
        drawn.len()
    ));
    Ok(())
}
