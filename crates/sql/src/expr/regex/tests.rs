//! What patterns find, with the answers of PostgreSQL 15.

use super::*;

#[test]
fn patterns_mean_what_they_mean_in_postgresql() {
    let yes = [
        ("a\nb", "a.b"),
        ("abc", "^abc$"),
        ("a]", "^[]a]+$"),
        ("x{", "x{"),
        ("foo bar", "\\mbar\\M"),
        ("a-b", "^[a-]-b$"),
        ("a&&b", "^[a&b]+$"),
        ("aB", "(?i)^ab$"),
        ("a.b", "***=a.b"),
        ("tab\t", "\\t"),
        ("e9", "^[[:alpha:]][[:digit:]]$"),
        ("aaa", "^a{2,}$"),
        ("abab", "^(ab)\\1$"),
        ("ab", "a(?=b)"),
        ("ac", "a(?!b)"),
        ("ab", "(?<=a)b"),
        ("a\nb", "(?n)a\\Wb"),
        ("abc", "(?x) a . c # words"),
        ("a-", "[[.-.]]$"),
        ("a*", "(?q)a*"),
    ];
    for (text, pattern) in yes {
        assert!(matches(text, pattern, false).unwrap(), "{text} ~ {pattern}");
    }
    let no = [
        ("abc", "^b"),
        ("a\n", "^a$"),
        ("axb", "***=a.b"),
        ("é", "^\\w$"),
    ];
    for (text, pattern) in no {
        assert!(
            !matches(text, pattern, false).unwrap(),
            "{text} ~ {pattern}"
        );
    }
    for (pattern, state) in [
        ("(a", "2201B"),
        ("a)", "2201B"),
        ("*a", "2201B"),
        ("a**", "2201B"),
        ("[a", "2201B"),
        ("a{300}", "2201B"),
        ("a{3,2}", "2201B"),
        ("[b-a]", "2201B"),
        ("[[.ab.]]", "0A000"),
    ] {
        let e = matches("a", pattern, false).unwrap_err();
        assert_eq!(e.sqlstate(), state, "{pattern}");
    }
}

#[test]
fn the_longest_match_is_replaced() {
    let replaced = |text: &str, pattern: &str, with: &str, flags: &str| {
        replace(text, pattern, with, Flags::parse(flags).unwrap()).unwrap()
    };
    assert_eq!(replaced("foobarbaz", "b..", "X", ""), "fooXbaz");
    assert_eq!(replaced("foobarbaz", "b..", "X", "g"), "fooXX");
    assert_eq!(replaced("foobarbaz", "b(..)", "X\\1Y", "g"), "fooXarYXazY");
    assert_eq!(replaced("abab", "a|ab", "<\\&>", "g"), "<ab><ab>");
    assert_eq!(replaced("abc", "x*", "-", "g"), "-a-b-c-");
    assert_eq!(replaced("a.b", "\\.", "\\\\", ""), "a\\b");
}

#[test]
fn parts_take_what_they_prefer() {
    let found = |text: &str, pattern: &str| {
        let found = all(text, pattern, Flags::default(), 0, 1).expect(pattern);
        let whole = found.iter().map(|f| Some((f.start, f.end)));
        let groups = found.iter().flat_map(|f| f.groups.iter().copied());
        let parts: Vec<String> = whole
            .chain(groups)
            .map(|part| {
                part.map_or("NULL", |(from, to)| &text[from..to])
                    .to_string()
            })
            .collect();
        parts.join(",")
    };
    for (text, pattern, parts) in [
        ("XY1234Z", "Y*([0-9]{1,3})", "Y123,123"),
        ("XY1234Z", "Y*?([0-9]{1,3})", "Y1,1"),
        ("abc01234xyz", "(.*)(\\d+)(.*)", "abc01234xyz,abc0123,4,xyz"),
        ("abc01234xyz", "(.*?)(\\d+)(.*)", "abc0,abc,0,"),
        (
            "abc01234xyz",
            "(?:(.*?)(\\d+)(.*)){1,1}",
            "abc01234xyz,abc,01234,xyz",
        ),
        ("abc", "(a|ab)(bc|c)", "abc,ab,c"),
        ("<b>x</b>", "<.*?>", "<b>"),
        ("foobar", "(foo)(x)?", "foo,foo,NULL"),
        ("aaa", "(a)*", "aaa,a"),
        ("xabab", "(?:(ab)\\1)+", "abab,ab"),
        ("abcdefg", "^(?:a|b){1,1}?(.*){1,1}(?:g)$", "abcdefg,bcdef"),
        ("foo", "foo(bar)?", "foo,NULL"),
        ("", "()*\\1", ","),
    ] {
        assert_eq!(found(text, pattern), parts, "{text} ~ {pattern}");
    }
    let replaced = |text: &str, pattern: &str, with: &str| {
        replace(text, pattern, with, Flags::parse("g").unwrap()).unwrap()
    };
    assert_eq!(
        replaced("foobarrbazz", "(.)\\1", "X\\&Y"),
        "fXooYbaXrrYbaXzzY"
    );
    assert_eq!(replaced("a<i>b</i>", "<.+?>", ""), "ab");
}
