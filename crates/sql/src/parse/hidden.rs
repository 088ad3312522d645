//! Texts of statements without the passwords in them.
//!
//! A text is read as SQL: comments, names in quotes and strings hide what stands in them. The value
//! of a string is read as a text of its own, for it may be a statement that EXECUTE runs. Where a
//! text has something that is not closed, its reader may have lost the beginnings of strings; it is
//! then read once more without them, and what either reading finds is hidden.
//!
//! **Invariant.** The work is linear in the text: a byte is read a bounded number of times for each
//! string that it stands in, and of these there are [`DEPTH_MAX`] at most.

use super::split::{comment_end, continuation, dollar_end, line_end};

/// What stands for a password in a text that is shown.
const HIDDEN: &str = "'***'";
/// Strings within strings that are read. One that is deeper and mentions a password is hidden as a
/// whole. A block that runs a statement that makes a function with a statement has three.
const DEPTH_MAX: usize = 6;

/// The statement with its passwords hidden, as views, logs and traces may show it. `None` if it has
/// none. What follows a word that announces a password is hidden wherever it stands: also in a
/// statement that is wrong, or within another.
pub fn without_passwords(sql: &str) -> Option<String> {
    of_client(sql, false)
}

/// [`without_passwords`] of a text as its client has sent it, maybe with backslashes that begin
/// escapes in plain strings.
pub fn of_client(sql: &str, escapes_in_plain: bool) -> Option<String> {
    let plain = match escapes_in_plain {
        true => Escapes::Letters,
        false => Escapes::None,
    };
    let secrets = Reader::of(sql, plain).secrets();
    (!secrets.is_empty()).then(|| shown(sql, secrets))
}

/// A message that may go with a statement, with the passwords hidden that the log must not have:
/// those of statements that it quotes, and what an error of syntax says to be near.
pub fn of_message(message: &str, statement: Option<&str>) -> Option<String> {
    const NEAR: &str = " at or near \"";
    if let Some((head, near)) = message.split_once(NEAR)
        && near.contains(['\'', '$'])
        && statement.and_then(without_passwords).is_some()
    {
        return Some(format!("{head}{NEAR}{HIDDEN}\""));
    }
    let mut reader = Reader::of(message, Escapes::None);
    // The quotes around a statement are those of names.
    reader.has_names = false;
    reader.is_doubtful = true;
    let secrets = reader.secrets();
    (!secrets.is_empty()).then(|| shown(message, secrets))
}

fn shown(text: &str, secrets: Vec<Secret>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for secret in secrets {
        shown.push_str(&text[from..secret.from]);
        shown.push_str(&secret.shown);
        from = secret.to;
    }
    shown.push_str(&text[from..]);
    shown
}

/// A part of a text, and what is shown in its place.
struct Secret {
    from: usize,
    to: usize,
    shown: String,
}

/// What a backslash in a string begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    None,
    /// `\n`, `\'`, `\x27` and so on.
    Letters,
    /// `\0027` and `\+000027`.
    Codes,
}

/// Whether a text may have a word that announces a password, maybe written with escapes, or in a
/// string that goes on in the next line.
fn may_mention(text: &str) -> bool {
    let bytes = text.as_bytes();
    let has = |word: &[u8]| {
        let mut places = bytes.windows(word.len());
        places.any(|place| place.eq_ignore_ascii_case(word))
    };
    let goes_on =
        || memchr::memchr(b'\'', bytes).is_some() && memchr::memchr2(b'\n', b'\r', bytes).is_some();
    memchr::memchr(b'\\', bytes).is_some() || goes_on() || has(b"password") || has(b"identified")
}

struct Reader<'t> {
    text: &'t str,
    /// What backslashes begin in strings with nothing before them.
    plain: Escapes,
    depth: usize,
    /// Names in quotes hide what is in them.
    has_names: bool,
    /// Quotes hide nothing, but behind a word that announces a password.
    is_loose: bool,
    /// There may be a comment that is closed.
    has_comments: bool,
    /// Something is not closed that is no password.
    is_doubtful: bool,
    found: Vec<Secret>,
}

impl<'t> Reader<'t> {
    fn of(text: &'t str, plain: Escapes) -> Reader<'t> {
        Reader {
            text,
            plain,
            depth: 0,
            has_names: true,
            is_loose: false,
            has_comments: true,
            is_doubtful: false,
            found: Vec::new(),
        }
    }

    fn within_another(text: &'t str, plain: Escapes, depth: usize) -> Vec<Secret> {
        let mut reader = Reader::of(text, plain);
        reader.depth = depth + 1;
        reader.secrets()
    }

    fn secrets(mut self) -> Vec<Secret> {
        if !may_mention(self.text) {
            return Vec::new();
        }
        self.read();
        if self.is_doubtful {
            self.is_loose = true;
            self.read();
        }
        self.found.sort_by_key(|secret| secret.from);
        self.found.dedup_by(|next, kept| {
            let is_within = next.from < kept.to;
            if is_within {
                kept.to = kept.to.max(next.to);
            }
            is_within
        });
        self.found
    }

    fn read(&mut self) {
        let (mut at, mut last) = (0, "");
        while at < self.text.len() {
            if !self.is_loose {
                at = self.blanks_end(at);
            }
            let word = word(&self.text[at..]);
            if word.is_empty() {
                at = self.other(at);
                continue;
            }
            at += word.len();
            let by_word =
                word.eq_ignore_ascii_case("by") && last.eq_ignore_ascii_case("identified");
            last = word;
            if by_word || word.eq_ignore_ascii_case("password") {
                at = self.hide(at, by_word);
            } else if !self.is_loose
                && let Some((quote, escapes)) = self.string(at - word.len())
            {
                at = self.within(quote, escapes);
            }
        }
    }

    /// Hides what stands behind a word that announces a password, if it is one. Where it ends.
    fn hide(&mut self, at: usize, by_word: bool) -> usize {
        let from = self.blanks_end(at);
        let Some(to) = self.secret_end(from, by_word) else {
            return from;
        };
        let quotes = match self.is_loose {
            true => quotes(&self.text[from..]).max(1),
            false => 1,
        };
        let shown = HIDDEN.replace('\'', &"'".repeat(quotes));
        self.found.push(Secret { from, to, shown });
        to
    }

    /// Where blanks and comments end.
    fn blanks_end(&mut self, from: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut at = from;
        loop {
            let rest = self.text[at..].trim_start();
            at = self.text.len() - rest.len();
            at = match rest.as_bytes() {
                [b'-', b'-', ..] => line_end(bytes, at),
                [b'/', b'*', ..] if self.is_loose => match self.loose_comment_end(at) {
                    Some(end) => end,
                    None => return at,
                },
                [b'/', b'*', ..] => {
                    let (end, is_closed) = comment_end(bytes, at);
                    self.is_doubtful |= !is_closed;
                    end
                }
                _ => return at,
            };
        }
    }

    /// Where a comment ends that nothing is within. Behind one without an end there is none.
    fn loose_comment_end(&mut self, at: usize) -> Option<usize> {
        let rest = &self.text[at + 2..];
        let end = self.has_comments.then(|| rest.find("*/")).flatten();
        self.has_comments = end.is_some();
        end.map(|n| at + n + 4)
    }

    /// Passes what is no word: a string, a name in quotes, or one character.
    fn other(&mut self, at: usize) -> usize {
        let rest = &self.text[at..];
        let Some(c) = rest.chars().next() else {
            return at;
        };
        match c {
            _ if self.is_loose => at + c.len_utf8(),
            '\'' => self.within(at, self.plain),
            '"' if self.has_names => match name_end(self.text, at) {
                Some(end) => end,
                None => {
                    self.is_doubtful = true;
                    self.text.len()
                }
            },
            '$' if !ends_with_word(&self.text[..at]) => self.within_dollars(at),
            _ => at + c.len_utf8(),
        }
    }

    /// The quote of a string that begins here, maybe behind a letter, and what its backslashes
    /// begin.
    fn string(&self, at: usize) -> Option<(usize, Escapes)> {
        let bytes = self.text.as_bytes();
        let second = bytes.get(at + 1).copied();
        match bytes.get(at)? {
            b'\'' => Some((at, self.plain)),
            b'e' | b'E' if second == Some(b'\'') => Some((at + 1, Escapes::Letters)),
            b'u' | b'U' if second == Some(b'&') && bytes.get(at + 2) == Some(&b'\'') => {
                Some((at + 2, Escapes::Codes))
            }
            b'n' | b'N' | b'b' | b'B' | b'x' | b'X' if second == Some(b'\'') => {
                Some((at + 1, self.plain))
            }
            _ => None,
        }
    }

    /// Where a password ends that begins here; the text's end if it is not closed. With `by_word` a
    /// word counts as well, quoted or not.
    fn secret_end(&self, at: usize, by_word: bool) -> Option<usize> {
        let rest = &self.text[at..];
        let run = quotes(rest);
        let mut end = if self.is_loose && run > 1 {
            at + run + doubled_end(&rest.as_bytes()[run..], run)
        } else if let Some((quote, escapes)) = self.string(at) {
            walk(self.text, quote, escapes, |_, _, _| {}).0
        } else if rest.starts_with('$') && dollar_end(self.text, at).0 > at + 1 {
            dollar_end(self.text, at).0
        } else if !by_word || rest.is_empty() || rest.starts_with(';') {
            return None;
        } else if rest.starts_with('"') {
            name_end(self.text, at).unwrap_or(self.text.len())
        } else {
            let is_end = |c: char| c.is_whitespace() || c == ';';
            rest.find(is_end).map_or(self.text.len(), |n| at + n)
        };
        // What is shown in its place is a string, which goes on so.
        while let Some(quote) = continuation(self.text.as_bytes(), end) {
            end = walk(self.text, quote, self.plain, |_, _, _| {}).0;
        }
        Some(end)
    }

    /// Hides the passwords in the value of a string. Where the string ends.
    fn within(&mut self, quote: usize, escapes: Escapes) -> usize {
        let (end, is_closed) = walk(self.text, quote, escapes, |_, _, _| {});
        self.is_doubtful |= !is_closed;
        if !may_mention(&self.text[quote..end]) {
            return end;
        }
        if self.depth == DEPTH_MAX {
            let (from, to, shown) = (quote, end, HIDDEN.to_string());
            self.found.push(Secret { from, to, shown });
            return end;
        }
        let mut value = String::with_capacity(end - quote);
        walk(self.text, quote, escapes, |_, _, c| value.push(c));
        let mut found = Reader::within_another(&value, self.plain, self.depth).into_iter();
        // Their places are those of the value so far.
        let mut next = found.next();
        let (mut at, mut begin) = (0, quote + 1);
        let own = &mut self.found;
        walk(self.text, quote, escapes, |from, to, c| {
            let Some(secret) = &next else { return };
            if at == secret.from {
                begin = from;
            }
            at += c.len_utf8();
            if at == secret.to {
                own.push(Secret {
                    from: begin,
                    to,
                    shown: secret.shown.replace('\'', "''"),
                });
                next = found.next();
            }
        });
        end
    }

    /// Hides the passwords in a string in dollars. Where that ends.
    fn within_dollars(&mut self, at: usize) -> usize {
        let (end, tag) = dollar_end(self.text, at);
        let inner = match self.text[at + tag..end].strip_suffix(&self.text[at..at + tag]) {
            _ if tag == 0 => return end,
            Some(inner) => inner,
            None => &self.text[at + tag..end],
        };
        if self.depth < DEPTH_MAX {
            let found = Reader::within_another(inner, self.plain, self.depth);
            self.found.extend(found.into_iter().map(|secret| Secret {
                from: at + tag + secret.from,
                to: at + tag + secret.to,
                ..secret
            }));
        } else if may_mention(inner) {
            let (from, to, shown) = (at, end, HIDDEN.to_string());
            self.found.push(Secret { from, to, shown });
        }
        end
    }
}

/// The word that a text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

fn ends_with_word(text: &str) -> bool {
    let last = text.chars().next_back();
    last.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// How many quotes a text begins with, as far as strings within strings are read.
fn quotes(text: &str) -> usize {
    let quotes = text.bytes().take_while(|b| *b == b'\'');
    quotes.take(1 << DEPTH_MAX).count()
}

/// Where a string ends that may stand in others, so that it begins with several quotes; or it is
/// empty, and what follows is hidden as well.
fn doubled_end(rest: &[u8], quotes: usize) -> usize {
    let mut at = 0;
    while let Some(n) = memchr::memchr(b'\'', &rest[at..]) {
        let run = rest[at + n..].iter().take_while(|b| **b == b'\'').count();
        at += n + run;
        // Two of them are a quote in it. What is too short for one ends the string around it.
        if run / quotes % 2 == 1 {
            return at - run % quotes;
        }
    }
    rest.len()
}

/// Where a name in quotes ends.
fn name_end(text: &str, from: usize) -> Option<usize> {
    let rest = &text.as_bytes()[from + 1..];
    // A doubled quote ends one name and begins the next, which comes to the same here.
    memchr::memchr(b'"', rest).map(|n| from + n + 2)
}

/// Reads a string and its continuations: each character of its value with where it is written,
/// from and to. Where the string ends, and whether it is closed.
fn walk(
    text: &str,
    quote: usize,
    escapes: Escapes,
    mut each: impl FnMut(usize, usize, char),
) -> (usize, bool) {
    let mut at = quote + 1;
    while let Some(c) = text[at..].chars().next() {
        let end = at + c.len_utf8();
        let (value, next) = match c {
            '\'' if text[end..].starts_with('\'') => (c, end + 1),
            '\'' => match continuation(text.as_bytes(), end) {
                Some(quote) => {
                    at = quote + 1;
                    continue;
                }
                None => return (end, true),
            },
            '\\' if escapes != Escapes::None => escaped(text, at, escapes),
            c => (c, end),
        };
        each(at, next, value);
        at = next;
    }
    (text.len(), false)
}

/// The character for which an escape stands, and where the escape ends. One that is wrong stands
/// for what it begins with.
fn escaped(text: &str, backslash: usize, escapes: Escapes) -> (char, usize) {
    let at = backslash + 1;
    let Some(c) = text[at..].chars().next() else {
        return ('\\', at);
    };
    let behind = at + c.len_utf8();
    let (from, radix, most) = match (escapes, c) {
        (Escapes::Letters, 'x') => (behind, 16, 2),
        (Escapes::Letters, 'u') => (behind, 16, 4),
        (Escapes::Letters, 'U') => (behind, 16, 8),
        (Escapes::Letters, '0'..='7') => (at, 8, 3),
        (Escapes::Letters, 'b' | 'f' | 'n' | 'r' | 't') => return (' ', behind),
        (Escapes::Codes, '+') => (behind, 16, 6),
        (Escapes::Codes, c) if c.is_ascii_hexdigit() => (at, 16, 4),
        // A quote may be the end of the string.
        (Escapes::Codes, '\'') => return ('\\', at),
        _ => return (c, behind),
    };
    let digits = text[from..].bytes().take(most);
    let digits = digits
        .take_while(|b| char::from(*b).is_digit(radix))
        .count();
    let code = u32::from_str_radix(&text[from..from + digits], radix).ok();
    match code.and_then(char::from_u32) {
        Some(value) => (value, from + digits),
        None => (c, behind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: [(&str, &str); 29] = [
        (
            "create role a password 'it''s' login",
            "create role a password '***' login",
        ),
        (
            "ALTER ROLE a\n  PASSWORD\n E'\\'x'",
            "ALTER ROLE a\n  PASSWORD\n '***'",
        ),
        (
            "alter user a identified by Tiger;",
            "alter user a identified by '***';",
        ),
        (
            "alter user a identified by \"Ti ger\"",
            "alter user a identified by '***'",
        ),
        (
            "alter role ä password $x$s'ecret$x$ -- t",
            "alter role ä password '***' -- t",
        ),
        (
            "alter role a password u&'d\\0061t' login",
            "alter role a password '***' login",
        ),
        (
            "prepare p as alter role a password 'x'",
            "prepare p as alter role a password '***'",
        ),
        // A statement within a string has its quotes doubled.
        (
            "do $$ begin execute 'alter role a password ''x'' login'; end $$",
            "do $$ begin execute 'alter role a password ''***'' login'; end $$",
        ),
        (
            "do 'begin execute ''alter role a password '''', x'''' login''; end'",
            "do 'begin execute ''alter role a password ''''***'''' login''; end'",
        ),
        (
            "execute 'alter role a password '' S''; select ''x'''",
            "execute 'alter role a password ''***''; select ''x'''",
        ),
        (
            "execute 'alter role a password '');S'' login'",
            "execute 'alter role a password ''***'' login'",
        ),
        (
            r"execute E'alter role a\n password \'it\'\'s\' login\n'",
            r"execute E'alter role a\n password ''***'' login\n'",
        ),
        (
            r"execute E'alter role a pass\x77ord \047S\u0027 login'",
            r"execute E'alter role a pass\x77ord ''***'' login'",
        ),
        (
            r"execute U&'alter role a password \0027S\+000027 login'",
            r"execute U&'alter role a password ''***'' login'",
        ),
        (
            "execute 'alter role a '\n'password ''S'\n'T'' login'",
            "execute 'alter role a '\n'password ''***'' login'",
        ),
        (
            "execute 'alter role a pass'\n'word ''S'' login'",
            "execute 'alter role a pass'\n'word ''***'' login'",
        ),
        (
            "do $a$ begin execute $b$ alter role a password $c$S$c$ $b$; end $a$",
            "do $a$ begin execute $b$ alter role a password '***' $b$; end $a$",
        ),
        (
            "alter role a password '' login",
            "alter role a password '***' login",
        ),
        // It goes on in the next line.
        (
            "alter role a password 'x' -- y\n 'z' login",
            "alter role a password '***' login",
        ),
        // What does not parse may have a password as well.
        (
            "create role a fast password 'y",
            "create role a fast password '***'",
        ),
        (
            "alter role a password /* /* ' */ ' */ -- '\n 'x'",
            "alter role a password /* /* ' */ ' */ -- '\n '***'",
        ),
        (
            "alter role a password 'x\u{e9}",
            "alter role a password '***'",
        ),
        (
            "comment on role a is 'it's'; alter role a password ''x'' login; select '",
            "comment on role a is 'it's'; alter role a password ''***'' login; select '",
        ),
        (
            "select 'it's'', alter role a password /* c */ 'x' login",
            "select 'it's'', alter role a password /* c */ '***' login",
        ),
        (
            "/* no end, alter role a password 'x' login",
            "/* no end, alter role a password '***' login",
        ),
        (
            "select \"no end, alter role a identified by x login",
            "select \"no end, alter role a identified by '***' login",
        ),
        (
            "execute 'alter role a password ''x'' login",
            "execute 'alter role a password ''***'' login",
        ),
        (
            "execute 'alter role a password ''' || x || ''''",
            "execute 'alter role a password ''***''' || x || ''''",
        ),
        (
            "select e'\\\\', 'password ''x'''",
            "select e'\\\\', 'password ''***'''",
        ),
    ];

    #[test]
    fn passwords_are_hidden() {
        for (sql, wanted) in SHOWN {
            assert_eq!(without_passwords(sql).as_deref(), Some(wanted), "{sql}");
            let again = without_passwords(wanted);
            assert_eq!(again.as_deref(), Some(wanted), "{sql}, once more");
        }
    }

    #[test]
    fn what_no_password_is_is_shown() {
        for sql in [
            "select 1",
            "select password from t where x = 'y'",
            "create role password",
            "create role a password null",
            "grant x to identified",
            "/* password ' */ drop table x",
            "-- password 'x'\ndrop table x",
            "select 1 as \"password 'x\", 2",
            "select 'enter a password', 'x'",
            "select \"password\" 'x' from t, u where y = 'z",
            "select $1 password $1",
            "select 'x' 'identified by', $a$ password $a$",
        ] {
            assert_eq!(without_passwords(sql), None, "{sql}");
        }
    }

    #[test]
    fn messages_quote_statements() {
        for (message, wanted) in [
            (
                "SQL statement \"alter role a password ', x' login\"",
                "SQL statement \"alter role a password '***' login\"",
            ),
            (
                "SQL statement \"do 'alter role a password ''it''''s x'''\"",
                "SQL statement \"do 'alter role a password ''***'''\"",
            ),
            (
                "it's \"do 'alter role a password ''it''''s x''; y'\"",
                "it's \"do 'alter role a password '***'; y'\"",
            ),
        ] {
            assert_eq!(of_message(message, None).as_deref(), Some(wanted));
        }
        let near = "unterminated quoted string at or near \"'x\"";
        assert_eq!(of_message(near, Some("select 'x")), None);
        assert_eq!(
            of_message(near, Some("alter role a password 'x")).as_deref(),
            Some("unterminated quoted string at or near \"'***'\"")
        );
        assert_eq!(of_message("column \"password\" of 'x'", None), None);
    }

    #[test]
    fn backslashes_begin_escapes_where_the_session_says_so() {
        let sql = r"alter role a password 'it\'s' login, 'a\' password ''x'''";
        let shown = r"alter role a password '***' login, 'a\' password ''***'''";
        assert_eq!(of_client(sql, true).as_deref(), Some(shown));
    }

    /// Texts that took minutes when each beginning was searched to the end of the text.
    #[test]
    fn a_long_text_is_read_once() {
        for piece in [
            "password /*",
            "password --",
            "password '''",
            "it's password '' /*",
            "password $a",
            "password $a$ $b$",
            "/*",
            "/* password \"' ",
            "e'password \\' ",
            "identified by \"",
            "'password''",
            "$a$ password '$a$",
            "password\n",
            "''''",
            "x' -- password '\n\n",
        ] {
            for begin in ["select 1/0 ", "\"", "'", "do $$ ", "/*"] {
                let sql = begin.to_string() + &piece.repeat((1 << 18) / piece.len());
                let shown = without_passwords(&sql);
                assert!(shown.is_none_or(|shown| !shown.is_empty()));
            }
        }
        let mut within = "alter role a password 'S3cret'".to_string();
        for at in 0..3000 {
            within = format!("do $a{at}$ {within} $a{at}$");
        }
        let shown = without_passwords(&within).expect("it has one");
        assert!(!shown.contains("S3cret"));
        for _ in 0..16 {
            within = format!("execute '{}'", within.replace('\'', "''"));
        }
        let shown = without_passwords(&within).expect("it has one");
        assert!(!shown.contains("S3cret"));
    }
}
