//! Time zones that are written as POSIX has them, without rules for summer time: a name and hours
//! west of Greenwich, `NST+3:30` or `<+05>-05`. The name may be empty: `+02:00`.

/// Longest name of a zone that is known, in bytes.
const LONGEST: usize = 31;

/// Longest part of hours, as in PostgreSQL: a week less one.
const MAX_HOURS: i32 = 167;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixZone {
    /// Seconds east of Greenwich.
    pub east_s: i32,
    label: [u8; LONGEST],
    length: u8,
}

impl PosixZone {
    /// `None`: not of this form, with seconds, or with rules for summer time.
    pub fn parse(text: &str) -> Option<PosixZone> {
        let (label, offset) = match text.strip_prefix('<') {
            Some(quoted) => quoted.split_once('>')?,
            None => {
                let ends = |c: char| c.is_ascii_digit() || matches!(c, ',' | '+' | '-');
                text.split_at(text.find(ends)?)
            }
        };
        let west_s = seconds(offset)?;
        let bytes = label.as_bytes();
        let mut zone = PosixZone {
            east_s: -west_s,
            label: [0; LONGEST],
            length: u8::try_from(bytes.len()).ok()?,
        };
        let kept = zone.label.get_mut(..bytes.len())?;
        kept.copy_from_slice(bytes);
        // PostgreSQL reads the name in capitals.
        kept.make_ascii_uppercase();
        label.is_ascii().then_some(zone)
    }

    /// What the zone calls its offset.
    pub fn label(&self) -> &str {
        let bytes = self.label.get(..usize::from(self.length));
        bytes.map_or("", |b| std::str::from_utf8(b).unwrap_or(""))
    }

    /// A spelling that [`PosixZone::parse`] reads back.
    pub fn name(&self) -> String {
        let sign = if self.east_s > 0 { '-' } else { '+' };
        let minutes = self.east_s.abs() / 60;
        let (hours, minutes) = (minutes / 60, minutes % 60);
        format!("<{}>{sign}{hours:02}:{minutes:02}", self.label())
    }
}

/// `[+-]h` or `[+-]h:m` in seconds; a part of seconds is nothing but zeros.
fn seconds(text: &str) -> Option<i32> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = |part: &str, most: i32| {
        let plain = part.bytes().all(|b| b.is_ascii_digit());
        let n: i32 = part.parse().ok()?;
        (plain && n <= most).then_some(n)
    };
    let mut parts = digits.split(':');
    let hours = number(parts.next()?, MAX_HOURS)?;
    let minutes = parts.next().map_or(Some(0), |m| number(m, 59))?;
    parts.next().map_or(Some(0), |s| number(s, 0))?;
    let total = sign * (hours * 3600 + minutes * 60);
    parts.next().is_none().then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_hours_west() {
        let read = |text| PosixZone::parse(text).map(|z| (z.label().to_string(), z.east_s));
        assert_eq!(read("+02:00"), Some((String::new(), -7200)));
        assert_eq!(read("nst3:30"), Some(("NST".to_string(), -12_600)));
        assert_eq!(read("<+05>-05"), Some(("+05".to_string(), 18_000)));
        for refused in [
            "", "abc", "+", "+02:60", "+2:3:4", "168", "<a", "EST5EDT", "+02:",
        ] {
            assert_eq!(read(refused), None, "{refused}");
        }
        let zone = PosixZone::parse("x-5:45");
        assert_eq!(zone.and_then(|z| PosixZone::parse(&z.name())), zone);
    }
}
