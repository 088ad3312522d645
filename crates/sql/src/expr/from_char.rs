//! `to_date` and `to_timestamp` of texts: the template patterns of [`super::to_char`], read.
//!
//! Unless the format says `FX`, blanks and separators of the text need not be those of the format:
//! blanks before a field are skipped, and a separator of the format passes one of the text or none.

use super::moments::{in_range, to_utc};
use super::to_char::{DAYS, MONTHS, pattern};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::pgtype::calendar::{
    Civil, DATE_END, DATE_MIN, JULIAN_OF_EPOCH, MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days,
    days_from_civil, days_in_month, rounded,
};
use crate::pgtype::timetz::Zoned;

/// Months as the last one that a text begins with is found first.
const ROMAN: [&str; 12] = [
    "xii", "xi", "x", "ix", "viii", "vii", "vi", "v", "iv", "iii", "ii", "i",
];

/// A part of a format.
enum Node<'f> {
    Field(Field<'f>),
    /// A blank, or a sign that is neither letter nor digit.
    Gap(char),
    Literal(char),
}

struct Field<'f> {
    /// As the format has it, and in capitals.
    written: &'f str,
    name: String,
    /// `FM`: as many digits as there are.
    fill: bool,
    /// The ending of an ordinal number follows: two characters of any kind.
    ordinal: bool,
}

/// How dates are counted: a format must not mix the two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Convention {
    Gregorian,
    IsoWeek,
}

/// What the fields of a text say; zero is as good as nothing.
#[derive(Default)]
struct Fields {
    convention: Option<Convention>,
    twelve_hours: bool,
    afternoon: i64,
    hour: i64,
    minute: i64,
    second: i64,
    second_of_day: i64,
    millis: i64,
    micros: i64,
    fraction_digits: i64,
    before_christ: i64,
    century: i64,
    year: i64,
    year_digits: i64,
    month: i64,
    week: i64,
    week_of_month: i64,
    day_of_year: i64,
    day: i64,
    /// From Sunday, which is 1.
    weekday: i64,
    julian: i64,
    zone_sign: i64,
    zone_hours: i64,
    zone_minutes: i64,
}

fn format_error(message: String) -> Error {
    Error::new("22007", message)
}

fn is_gap(c: char) -> bool {
    c.is_ascii_punctuation() || is_blank(c)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The parts of a format; `standard`: it has separators of the SQL standard alone.
fn nodes(format: &str, standard: bool) -> Result<Vec<Node<'_>>> {
    let (mut nodes, mut rest) = (Vec::new(), format);
    while !rest.is_empty() {
        let prefix = ["FM", "fm", "TM", "tm"]
            .into_iter()
            .find(|p| rest.starts_with(p));
        rest = &rest[prefix.map_or(0, str::len)..];
        if let Some((written, after)) = pattern(rest) {
            let ordinal = after.starts_with("TH") || after.starts_with("th");
            let skipped = usize::from(ordinal || after.starts_with("SP")) * 2;
            rest = &after[skipped..];
            nodes.push(Node::Field(Field {
                written,
                name: written.to_ascii_uppercase(),
                fill: matches!(prefix, Some("FM" | "fm")),
                ordinal,
            }));
            continue;
        }
        let mut chars = rest.chars();
        if let Some(c) = rest.chars().next()
            && standard
            && !"\"-./,':; ".contains(c)
        {
            let message = format!("invalid datetime format separator: \"{c}\"");
            return Err(format_error(message));
        }
        match chars.next() {
            Some('"') => {
                while let Some(c) = chars.next() {
                    nodes.push(Node::Literal(match c {
                        '"' => break,
                        '\\' => chars.next().unwrap_or('\\'),
                        c => c,
                    }));
                }
            }
            // Outside of quotes a backslash means something before a quote alone.
            Some('\\') if chars.as_str().starts_with('"') => {
                chars.next();
                nodes.push(Node::Gap('"'));
            }
            Some(c) if is_gap(c) => nodes.push(Node::Gap(c)),
            Some(c) => nodes.push(Node::Literal(c)),
            None => {}
        }
        rest = chars.as_str();
    }
    Ok(nodes)
}

/// Whether the number of a field ends where its digits do: nothing behind it begins with a digit.
fn ends_by_itself(field: &Field<'_>, next: Option<&Node<'_>>) -> bool {
    field.fill
        || field.ordinal
        || match next {
            None | Some(Node::Gap(_)) => true,
            Some(Node::Field(next)) => !next.is_number(),
            Some(Node::Literal(c)) => !c.is_ascii_digit(),
        }
}

impl Field<'_> {
    fn is_number(&self) -> bool {
        !matches!(
            self.name.as_str(),
            "A.D."
                | "AD"
                | "B.C."
                | "BC"
                | "A.M."
                | "AM"
                | "P.M."
                | "PM"
                | "DAY"
                | "DY"
                | "FX"
                | "MONTH"
                | "MON"
                | "OF"
                | "RM"
                | "TZH"
                | "TZ"
        )
    }

    fn convention(&self) -> Option<Convention> {
        match self.name.as_str() {
            "IDDD" | "ID" | "IW" | "IYYY" | "IYY" | "IY" | "I" => Some(Convention::IsoWeek),
            "DDD" | "DD" | "D" | "MM" | "MONTH" | "MON" | "RM" | "WW" | "W" | "Y,YYY" | "YYYY"
            | "YYY" | "YY" | "Y" => Some(Convention::Gregorian),
            _ => None,
        }
    }
}

/// A text on its way.
struct Reader<'t> {
    rest: &'t str,
    /// The character before.
    before: Option<char>,
    /// Characters that were skipped beyond those of the format.
    extra: i64,
    /// `FX` was met.
    exact: bool,
    /// Separators and texts of the format must be there, and nothing else.
    standard: bool,
    fields: Fields,
}

/// A whole number that a text begins with, blanks and a sign before it, and its length in bytes;
/// none if it is beyond 64 bits.
fn number(text: &str) -> (Option<i64>, usize) {
    let digits = text.trim_start_matches(is_blank);
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    let after = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
    match after.len() == unsigned.len() {
        true => (Some(0), 0),
        false => {
            let used = text.len() - after.len();
            (text[..used].trim_start_matches(is_blank).parse().ok(), used)
        }
    }
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        self.before = chars.next();
        self.rest = chars.as_str();
        self.before
    }

    fn skip(&mut self, bytes: usize) {
        self.before = self.rest[..bytes].chars().next_back().or(self.before);
        self.rest = &self.rest[bytes..];
    }

    fn skip_blanks(&mut self) {
        while self.rest.starts_with(is_blank) {
            self.next();
            self.extra += 1;
        }
    }

    fn read(&mut self, nodes: &[Node<'_>]) -> Result<()> {
        for (at, node) in nodes.iter().enumerate() {
            if self.rest.is_empty() && self.standard {
                let message = "input string is too short for datetime format";
                return Err(format_error(message.to_string()));
            }
            if self.rest.is_empty() {
                break;
            }
            if self.standard {
                self.meet(node)?;
            }
            let is_mode = matches!(node, Node::Field(f) if f.name == "FX");
            let is_field = matches!(node, Node::Field(_));
            if !self.exact && !is_mode && (is_field || at == 0) {
                self.skip_blanks();
            }
            match node {
                Node::Gap(_) if self.exact => {
                    self.next();
                }
                Node::Gap(_) => {
                    self.extra -= 1;
                    if self.rest.starts_with(is_gap) {
                        self.next();
                        self.extra += 1;
                    }
                }
                Node::Literal(_) if !self.exact && self.extra > 0 => self.extra -= 1,
                Node::Literal(_) => {
                    self.next();
                }
                Node::Field(field) => self.field(field, nodes.get(at + 1))?,
            }
        }
        if self.standard && !self.rest.trim_start_matches(is_blank).is_empty() {
            let message = "trailing characters remain in input string after datetime format";
            return Err(format_error(message.to_string()));
        }
        Ok(())
    }

    /// Refuses a text that does not go on with a separator or a text of the format.
    fn meet(&self, node: &Node<'_>) -> Result<()> {
        let (wanted, what) = match node {
            Node::Gap(c) => (c, "separator"),
            Node::Literal(c) => (c, "character"),
            Node::Field(_) => return Ok(()),
        };
        match self.rest.starts_with(*wanted) {
            true => Ok(()),
            false => Err(format_error(format!(
                "unmatched format {what} \"{wanted}\""
            ))),
        }
    }

    fn field(&mut self, field: &Field<'_>, next: Option<&Node<'_>>) -> Result<()> {
        if let Some(convention) = field.convention()
            && *self.fields.convention.get_or_insert(convention) != convention
        {
            let message = "invalid combination of date conventions".to_string();
            return Err(format_error(message).hint(
                "Do not mix Gregorian and ISO week date conventions in a formatting template.",
            ));
        }
        match field.is_number() {
            true => {
                self.numeric(field, next)?;
                if field.ordinal {
                    self.next();
                    self.next();
                }
            }
            false => self.named(field, next)?,
        }
        if !self.exact {
            self.extra = 0;
            self.skip_blanks();
        }
        Ok(())
    }

    /// A field that is a word, or says how others are read.
    fn named(&mut self, field: &Field<'_>, next: Option<&Node<'_>>) -> Result<()> {
        let (value, slot) = match field.name.as_str() {
            "FX" => {
                self.exact = true;
                return Ok(());
            }
            "TZH" => return self.zone_hours(field, next),
            "TZ" | "OF" => {
                let message = format!(
                    "formatting field \"{}\" is only supported in to_char",
                    field.written
                );
                return Err(Error::new("0A000", message));
            }
            "AM" | "PM" | "A.M." | "P.M." => {
                self.fields.twelve_hours = true;
                let halves = match field.name.len() {
                    2 => ["am", "pm"],
                    _ => ["a.m.", "p.m."],
                };
                (self.word(field, &halves)?, &mut self.fields.afternoon)
            }
            "AD" | "BC" => (
                self.word(field, &["ad", "bc"])?,
                &mut self.fields.before_christ,
            ),
            "A.D." | "B.C." => (
                self.word(field, &["a.d.", "b.c."])?,
                &mut self.fields.before_christ,
            ),
            "MONTH" => (self.word(field, &MONTHS)? + 1, &mut self.fields.month),
            "MON" => {
                let months = MONTHS.map(|m| &m[..3]);
                (self.word(field, &months)? + 1, &mut self.fields.month)
            }
            "DAY" => (self.word(field, &DAYS)? + 1, &mut self.fields.weekday),
            "DY" => {
                let days = DAYS.map(|d| &d[..3]);
                (self.word(field, &days)? + 1, &mut self.fields.weekday)
            }
            "RM" => (12 - self.word(field, &ROMAN)?, &mut self.fields.month),
            other => return Err(Error::internal(format!("the pattern {other}"))),
        };
        set(slot, value, field)
    }

    /// Which of the words the text begins with.
    fn word(&mut self, field: &Field<'_>, words: &[&str]) -> Result<i64> {
        let begins = |word: &&str| {
            let begin = self.rest.get(..word.len());
            begin.is_some_and(|b| b.eq_ignore_ascii_case(word))
        };
        let Some(at) = words.iter().position(begins) else {
            let shown = self.rest.split(is_blank).next().unwrap_or_default();
            let message = format!("invalid value \"{shown}\" for \"{}\"", field.written);
            return Err(format_error(message).detail(
                "The given value did not match any of the allowed values for this field.",
            ));
        };
        self.skip(words[at].len());
        Ok(at as i64)
    }

    fn zone_hours(&mut self, field: &Field<'_>, next: Option<&Node<'_>>) -> Result<()> {
        let sign = self.rest.chars().next().filter(|c| "+- ".contains(*c));
        let negative = match sign {
            Some(sign) => {
                self.next();
                sign == '-'
            }
            // What was passed over as a separator may have been a sign.
            None => self.extra > 0 && self.before == Some('-'),
        };
        self.fields.zone_sign = if negative { -1 } else { 1 };
        let (hours, _) = self.integer(2, field, next)?;
        set(&mut self.fields.zone_hours, hours, field)
    }

    /// A number of at most so many places where the next field begins with a digit, and how many
    /// characters it has.
    fn integer(
        &mut self,
        places: usize,
        field: &Field<'_>,
        next: Option<&Node<'_>>,
    ) -> Result<(i64, usize)> {
        let text = self.rest.trim_start_matches(is_blank);
        let blanks = self.rest.len() - text.len();
        let mut most = places.min(text.len());
        while !text.is_char_boundary(most) {
            most -= 1;
        }
        let copy = &text[..most];
        let fixed = "If your source string is not fixed-width, try using the \"FM\" modifier.";
        let (value, used) = match ends_by_itself(field, next) {
            true => number(self.rest),
            false if most < places => {
                let message = format!(
                    "source string too short for \"{}\" formatting field",
                    field.written
                );
                return Err(format_error(message)
                    .detail(format!(
                        "Field requires {places} characters, but only {most} remain."
                    ))
                    .hint(fixed));
            }
            false => {
                let (value, used) = number(copy);
                if used > 0 && used < places {
                    let message = format!("invalid value \"{copy}\" for \"{}\"", field.written);
                    return Err(format_error(message)
                        .detail(format!(
                            "Field requires {places} characters, but only {used} could be parsed."
                        ))
                        .hint(fixed));
                }
                (value, used + blanks)
            }
        };
        if used == 0 {
            let message = format!("invalid value \"{copy}\" for \"{}\"", field.written);
            return Err(format_error(message).detail("Value must be an integer."));
        }
        let value = value.and_then(|v| i32::try_from(v).ok()).ok_or_else(|| {
            let message = format!(
                "value for \"{}\" in source string is out of range",
                field.written
            );
            Error::new("22008", message).detail(format!(
                "Value must be in the range {} to {}.",
                i32::MIN,
                i32::MAX
            ))
        })?;
        self.skip(used);
        Ok((value.into(), used))
    }

    fn numeric(&mut self, field: &Field<'_>, next: Option<&Node<'_>>) -> Result<()> {
        let name = field.name.as_str();
        if name == "Y,YYY" {
            return self.thousands(field);
        }
        let places = match name {
            "ID" => 1,
            "HH12" | "HH24" | "TZM" => 2,
            "MS" | "IDDD" => 3,
            "US" => 6,
            name if name.starts_with("FF") => usize::from(name.as_bytes()[2] - b'0'),
            name => name.len(),
        };
        let (mut value, used) = self.integer(places, field, next)?;
        let slot: fn(&mut Fields) -> &mut i64 = match name {
            "HH" | "HH12" | "HH24" => |f| &mut f.hour,
            "MI" => |f| &mut f.minute,
            "SS" => |f| &mut f.second,
            "SSSS" | "SSSSS" => |f| &mut f.second_of_day,
            "MS" => |f| &mut f.millis,
            "TZM" => |f| &mut f.zone_minutes,
            "MM" => |f| &mut f.month,
            "DDD" | "IDDD" => |f| &mut f.day_of_year,
            "DD" => |f| &mut f.day,
            "D" | "ID" => |f| &mut f.weekday,
            "WW" | "IW" => |f| &mut f.week,
            "W" => |f| &mut f.week_of_month,
            "CC" => |f| &mut f.century,
            "J" => |f| &mut f.julian,
            "Q" => return Ok(()),
            name if name.starts_with("FF") || name == "US" => |f| &mut f.micros,
            _ => |f| &mut f.year,
        };
        set(slot(&mut self.fields), value, field)?;
        let fields = &mut self.fields;
        let tens = |digits: usize| 10_i64.pow(digits.saturating_sub(used) as u32);
        match name {
            "HH" | "HH12" => fields.twelve_hours = true,
            // 25 is a quarter of a second, as 250 is.
            "MS" => fields.millis *= tens(3),
            "US" => fields.micros *= tens(6),
            name if name.starts_with("FF") => {
                fields.fraction_digits = places as i64;
                fields.micros *= tens(6);
            }
            "TZM" if fields.zone_sign == 0 => fields.zone_sign = 1,
            // From Monday, which is 1.
            "ID" => fields.weekday = if value >= 7 { 1 } else { value + 1 },
            "YYYY" | "IYYY" => fields.year_digits = 4,
            "YYY" | "IYY" | "YY" | "IY" | "Y" | "I" => {
                if used < 4 {
                    value = near_2020(value);
                }
                fields.year = value;
                fields.year_digits = places as i64;
            }
            _ => {}
        }
        Ok(())
    }

    /// A year with a comma.
    fn thousands(&mut self, field: &Field<'_>) -> Result<()> {
        let invalid = || format_error("invalid input string for \"Y,YYY\"".to_string());
        let (millennia, used) = number(self.rest);
        let rest = self.rest[used..].strip_prefix(',');
        let (Some(millennia), Some(rest)) = (millennia.filter(|_| used > 0), rest) else {
            return Err(invalid());
        };
        let most = rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at);
        let (years, behind) = number(&rest[..most]);
        let years = years.filter(|_| behind > 0).ok_or_else(invalid)?;
        self.skip(used + 1 + behind);
        self.fields.year_digits = 4;
        let year = millennia.saturating_mul(1000).saturating_add(years);
        set(&mut self.fields.year, year, field)
    }
}

/// Sets a field that must not have been set to something else.
fn set(slot: &mut i64, value: i64, field: &Field<'_>) -> Result<()> {
    if *slot != 0 && *slot != value {
        return Err(format_error(format!(
            "conflicting values for \"{}\" field in formatting string",
            field.written
        ))
        .detail("This value contradicts a previous setting for the same field type."));
    }
    *slot = value;
    Ok(())
}

/// A year of less than four digits, near 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        70..100 => year + 1900,
        520..1000 => year + 1000,
        1000.. => year,
        _ => year + 2000,
    }
}

/// A date and a time, as fields make them; the year counts on below 1.
struct Moment {
    date: Date,
    micros: i64,
}

#[derive(Clone, Copy)]
struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    fn of_days(days: i64) -> Date {
        let civil = civil_from_days(days);
        Date {
            year: civil.year,
            month: civil.month.into(),
            day: civil.day.into(),
        }
    }

    /// Days from 2000; none where no calendar goes.
    fn days(self) -> Option<i64> {
        let first = days_from_civil(Civil {
            year: self.year,
            month: u32::try_from(self.month).ok()?,
            day: 1,
        });
        Some(first + self.day - 1)
    }
}

/// The Monday of the first week of a year by ISO 8601.
fn first_monday(year: i64) -> i64 {
    let fourth = days_from_civil(Civil {
        year,
        month: 1,
        day: 4,
    });
    // 2000 began on a Saturday.
    fourth - (fourth + 5).rem_euclid(7)
}

impl Fields {
    fn moment(&self, text: &str) -> Result<Moment> {
        let overflow = || {
            let message = format!("date/time field value out of range: \"{text}\"");
            Error::new("22008", message)
        };
        let second_of_day = self.time()?;
        let date = self.date(&overflow)?;
        let fraction = self.millis * 1000 + self.micros;
        let [hour, minute, second] = second_of_day;
        let whole = (0..24).contains(&hour) && (0..60).contains(&minute);
        if !whole || !(0..60).contains(&second) || !(0..MICROS_PER_SECOND).contains(&fraction) {
            return Err(overflow());
        }
        Ok(Moment {
            date,
            micros: ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + fraction,
        })
    }

    /// Hour, minute and second.
    fn time(&self) -> Result<[i64; 3]> {
        let or = |field: i64, other: i64| if field == 0 { other } else { field };
        let mut hour = or(self.hour, self.second_of_day / 3600);
        if self.twelve_hours {
            if !(1..=12).contains(&hour) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                return Err(format_error(message)
                    .hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            hour = hour % 12 + if self.afternoon == 0 { 0 } else { 12 };
        }
        let minute = or(self.minute, self.second_of_day / 60 % 60);
        Ok([hour, minute, or(self.second, self.second_of_day % 60)])
    }

    /// The year, if there is one.
    fn year(&self) -> Option<i64> {
        let century = match self.before_christ {
            0 => self.century,
            _ => -self.century,
        };
        let counted = match (self.year, self.century) {
            (0, 0) => return None,
            (0, _) if century >= 0 => (century - 1) * 100 + 1,
            (0, _) => century * 100 + 1,
            (year, c) if c != 0 && self.year_digits <= 2 => match (year % 100, century >= 0) {
                (0, true) => century * 100,
                (0, false) => century * 100 + 1,
                (year, true) => year + (century - 1) * 100,
                (year, false) => (century + 1) * 100 - year + 1,
            },
            (year, _) => {
                let year = if self.before_christ == 0 { year } else { -year };
                if year < 0 { year + 1 } else { year }
            }
        };
        Some(counted)
    }

    fn date(&self, overflow: &dyn Fn() -> Error) -> Result<Date> {
        let year = self.year();
        let mut date = Date {
            year: year.unwrap_or(0),
            month: 1,
            day: 1,
        };
        let (mut has_year, mut has_month, mut has_day) = (year.is_some(), false, false);
        let mut day_of_year = self.day_of_year;
        let iso = self.convention == Some(Convention::IsoWeek);
        let mut whole = |date: &mut Date, days: i64| {
            *date = Date::of_days(days);
            (has_year, has_month, has_day) = (true, true, true);
        };
        if self.julian != 0 {
            whole(&mut date, self.julian - JULIAN_OF_EPOCH);
        }
        if self.week != 0 {
            let days = (self.week - 1) * 7;
            let monday = first_monday(date.year) + days;
            match (iso, self.weekday) {
                (false, _) => day_of_year = days + 1,
                (true, 0) => whole(&mut date, monday),
                (true, 1) => whole(&mut date, monday + 6),
                (true, day) => whole(&mut date, monday + day - 2),
            }
        }
        if day_of_year != 0 && iso && self.is_first(&date) {
            self.needs_year(&date)?;
            let first = first_monday(date.year);
            whole(&mut date, first + day_of_year - 1);
            day_of_year = 0;
        }
        let day = match self.week_of_month {
            0 => self.day,
            week => (week - 1) * 7 + 1,
        };
        if day != 0 {
            (date.day, has_day) = (day, true);
        }
        if self.month != 0 {
            (date.month, has_month) = (self.month, true);
        }
        if day_of_year != 0 && self.is_first(&date) {
            self.needs_year(&date)?;
            of_day_of_year(&mut date, day_of_year);
            (has_month, has_day) = (true, true);
        }
        let wrong_month = has_month && !(1..=12).contains(&date.month);
        let wrong_day = has_day && !(1..=31).contains(&date.day);
        let all = has_year && has_month && has_day;
        let most = |date: &Date| i64::from(days_in_month(date.year, date.month as u32));
        if wrong_month || wrong_day || all && date.day > most(&date) {
            return Err(overflow());
        }
        Ok(date)
    }

    /// Whether the month or the day has not been said.
    fn is_first(&self, date: &Date) -> bool {
        date.month <= 1 || date.day <= 1
    }

    fn needs_year(&self, date: &Date) -> Result<()> {
        match date.year == 0 && self.before_christ == 0 {
            true => Err(format_error(
                "cannot calculate day of year without year information".to_string(),
            )),
            false => Ok(()),
        }
    }
}

/// Sets the month and the day, of which one may have been said.
fn of_day_of_year(date: &mut Date, day_of_year: i64) {
    let (mut month, mut before) = (1, 0);
    while month <= 12 {
        let days = i64::from(days_in_month(date.year, month));
        if day_of_year <= before + days {
            break;
        }
        before += days;
        month += 1;
    }
    if date.month <= 1 {
        date.month = month.into();
    }
    if date.day <= 1 {
        date.day = day_of_year - before;
    }
}

fn read(text: &str, format: &str) -> Result<Fields> {
    read_nodes(text, &nodes(format, false)?, false)
}

fn read_nodes(text: &str, nodes: &[Node<'_>], standard: bool) -> Result<Fields> {
    let mut reader = Reader {
        rest: text,
        before: None,
        extra: 0,
        exact: standard,
        standard,
        fields: Fields::default(),
    };
    reader.read(nodes)?;
    Ok(reader.fields)
}

/// What a format of the SQL standard makes of a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Standard {
    /// Days from 2000.
    Date(i32),
    /// Microseconds from midnight.
    Time(i64),
    TimeTz(Zoned),
    /// Microseconds from 2000.
    Timestamp(i64),
    TimestampTz {
        utc: i64,
        east_s: i64,
    },
}

/// Refuses a format that is none of the SQL standard.
pub fn check_standard(format: &str) -> Result<()> {
    nodes(format, true).map(drop)
}

/// The moment that a format of the SQL standard finds in a text: of which type it is, the format
/// says.
pub fn standard(text: &str, format: &str) -> Result<Standard> {
    let nodes = nodes(format, true)?;
    let fields = read_nodes(text, &nodes, true)?;
    let (mut dated, mut timed, mut zoned) = (false, false, false);
    for node in &nodes {
        let Node::Field(field) = node else { continue };
        match field.name.as_str() {
            "FX" => {}
            "TZH" | "TZM" => zoned = true,
            "A.M." | "P.M." | "AM" | "PM" | "HH" | "HH12" | "HH24" | "MI" | "SS" | "MS" | "US"
            | "SSSS" | "SSSSS" => timed = true,
            name if name.starts_with("FF") => timed = true,
            _ => dated = true,
        }
    }
    if !timed {
        let what = match (dated, zoned) {
            (true, false) => {
                let days = fields.moment(text)?.date.days();
                return date_in_range(days, text).map(Standard::Date);
            }
            (true, true) => "datetime format is zoned but not timed",
            (false, _) => "datetime format is not dated and not timed",
        };
        return Err(format_error(what.to_string()));
    }
    let moment = fields.moment(text)?;
    let east_s = fields.zone(text)?.filter(|_| zoned);
    let to_digits = |micros: i64| match fields.fraction_digits {
        0 => micros,
        digits => rounded(micros, digits as i32),
    };
    if !dated {
        let micros = to_digits(moment.micros);
        return Ok(match east_s {
            Some(east) => Standard::TimeTz(Zoned {
                micros,
                east_s: east as i32,
            }),
            None => Standard::Time(micros),
        });
    }
    let out_of_range = || Error::new("22008", "timestamp out of range");
    let days = moment.date.days().ok_or_else(out_of_range)?;
    let local = days.checked_mul(MICROS_PER_DAY);
    let local = local.and_then(|d| d.checked_add(moment.micros));
    let local = local.ok_or_else(out_of_range)?;
    Ok(match east_s {
        Some(east_s) => {
            let utc = local.checked_sub(east_s * MICROS_PER_SECOND);
            let utc = in_range(utc.ok_or_else(out_of_range)?)?;
            let utc = in_range(to_digits(utc))?;
            Standard::TimestampTz { utc, east_s }
        }
        None => Standard::Timestamp(in_range(to_digits(in_range(local)?))?),
    })
}

fn date_in_range(days: Option<i64>, text: &str) -> Result<i32> {
    let days = days.filter(|d| (DATE_MIN..DATE_END).contains(d));
    let days = days.and_then(|d| i32::try_from(d).ok());
    days.ok_or_else(|| Error::new("22008", format!("date out of range: \"{text}\"")))
}

/// `to_date(text, format)`: days from 2000.
pub fn to_date(text: &str, format: &str) -> Result<i32> {
    let moment = read(text, format)?.moment(text)?;
    date_in_range(moment.date.days(), text)
}

/// `to_timestamp(text, format)`: microseconds from 2000, UTC.
pub fn to_timestamp(text: &str, format: &str, io: &IoSettings) -> Result<i64> {
    let fields = read(text, format)?;
    let moment = fields.moment(text)?;
    let zone = fields.zone(text)?;
    let local = moment
        .date
        .days()
        .and_then(|d| d.checked_mul(MICROS_PER_DAY));
    let local = local.and_then(|d| d.checked_add(moment.micros));
    let out_of_range = || Error::new("22008", "timestamp out of range");
    let local = local.ok_or_else(out_of_range)?;
    let utc = match zone {
        Some(seconds) => {
            let utc = local.checked_sub(seconds * MICROS_PER_SECOND);
            in_range(utc.ok_or_else(out_of_range)?)?
        }
        None => to_utc(in_range(local)?, io)?,
    };
    match fields.fraction_digits {
        0 => Ok(utc),
        digits => in_range(rounded(utc, digits as i32)),
    }
}

impl Fields {
    /// Seconds east of Greenwich, if the text says.
    fn zone(&self, text: &str) -> Result<Option<i64>> {
        if self.zone_sign == 0 {
            return Ok(None);
        }
        if !(0..=15).contains(&self.zone_hours) || !(0..60).contains(&self.zone_minutes) {
            let message = format!("time zone displacement out of range: \"{text}\"");
            return Err(Error::new("22009", message));
        }
        let seconds = self.zone_hours * 3600 + self.zone_minutes * 60;
        Ok(Some(self.zone_sign * seconds))
    }
}
