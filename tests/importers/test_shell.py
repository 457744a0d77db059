"""The reader of shell scripts: what would be started, with which words and variables, and what stays unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobctl.jobspec.importers.draft import ImportProblem
from jobctl.jobspec.importers.env_list import read_list
from jobctl.jobspec.importers.escaping import Unknown, for_people, literal, required_variables, with_defaults
from jobctl.jobspec.importers.shell import syntax
from jobctl.jobspec.importers.shell.interpreter import read_script
from jobctl.jobspec.importers.shell.lexer import Token
from jobctl.jobspec.importers.shell.script import Script


def script(text: str, **files: str) -> Script:
    return read_script(text, lambda name: files.get(name.replace(".", "_")))


def argvs(text: str, **files: str) -> list[tuple[str, ...]]:
    return [command.argv for command in script(text, **files).commands]


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("run a 'b c' \"d e\"", ("run", "a", "b c", "d e")),
        (r"run a\ b \$x \"q\"", ("run", "a b", "$$x", '"q"')),
        ("run \\\n  --a \\\n  --b # c", ("run", "--a", "--b")),
        ("run a#b '' \"\"", ("run", "a#b", "", "")),
        ("X=1; run $X ${X} \"$X\" '$X' x$X.y", ("run", "1", "1", "1", "$$X", "x1.y")),
        ("X='a  b'; run $X \"$X\"", ("run", "a", "b", "a  b")),
        ("run $X ${X:-1} ${X-2}", ("run", "${X}", "${X:-1}", "${X-2}")),
        ("X=; run ${X:-1} ${X-2} ${X:+3} ${X+4}", ("run", "1", "4")),
        ("X=5; run ${X:-1} ${X:+3}", ("run", "5", "3")),
        (": ${X:=7}; run $X", ("run", "${X:-7}")),
        ("A=(a 'b c' d); run ${A[@]} ${#A[@]} ${A[0]}", ("run", "a", "b c", "d", "3", "a")),
        ("run {0..2} {a,b}x", ("run", "0", "1", "2", "ax", "bx")),
        ("N=4; run $((N * 2)) $(( $N + 1 ))", ("run", "8", "5")),
        ("run $(seq 2) `seq 1 2 5` $(pwd) $PWD", ("run", "1", "2", "1", "3", "5", ".", ".")),
        ("X+=a; X+=b; run $X", ("run", "ab")),
        ("run > log 2>&1 < in &", ("run",)),
        ("run | tee log", ("run",)),
        ("A = 1\nrun $A", ("run", "1")),
        ("run $(cat hosts_txt)", ("run", "a", "b")),
        ("run \"${A:-\"x y\"}\"", ("run", "${A:-x y}")),
        ("run $@ \"$@\" ${@:2} x", ("run", "x")),
        ("run 'a\nb'", ("run", "a\nb")),
        ("$ run a", ("run", "a")),
        ("! time_ a && x || y", ("time_", "a")),
        (r"run $'a\tb\'c' $'\x41\u00e9\101\q'", ("run", "a\tb'c", "AéA\\q")),
        ("run \"$'x'\"", ("run", "$$'x'")),
        ("run --a <(b (c) \"(\") \"<(d)\" --e=<(f)", ("run", "--a", '<(b (c) "(")', "<(d)", "--e=<(f)")),
        ("run > >(tee log) 2> >(tee -a err # (\n) < <(cat hosts_txt)", ("run",)),
        ("A=($X); run ${A[@]} ${#A[@]} ${A[0]} ${!A[@]}", ("run", "${X}", "$${#A[@]}", "$${A[0]}", "$${!A[@]}")),
        ("A=(a $X); A+=(b); run ${#A[@]} ${A[0]} ${A[-1]} $((${#A[@]} - 1))",
         ("run", "$${#A[@]}", "a", "$${A[-1]}", "$$(($${#A[@]} - 1))")),
        ("A=(a \"$X\" $(seq 2)); run ${#A[@]} ${A[3]}", ("run", "4", "2")),
        ("A=($(d)); B=(\"${A[@]}\"); run ${#A[@]} ${#B[@]}", ("run", "$${#A[@]}", "$${#B[@]}")),
        ("A=(a 'b c'); B=\"x ${A[@]} ${A[*]}\"; run $B", ("run", "x", "a", "b", "c", "a", "b", "c")),
        ("A=(a 'b c'); run \"x${A[*]}\" \"x${A[@]}\"", ("run", "xa b c", "xa", "b c")),
        ("declare -A A=([x]=1); run ${A[@]} ${A[x]}", ("run", "$${A[@]}", "$${A[x]}")),
        ("A=(x y); run ${!A[@]} ${B[$i]}", ("run", "0", "1", "$${B[$$i]}")),
        ("run ${X:-a b} \"${X:-a b}\" ${Y:-} \"${Y:-}\" --z=${Y:-}", ("run", "a", "b", "${X:-a b}", "${Y:-}", "--z=${Y:-}")),
    ],
)  # fmt: skip
def test_words(text: str, argv: tuple[str, ...]) -> None:
    assert argvs(text, hosts_txt="a\nb\n")[0] == argv


def test_loops_and_functions() -> None:
    assert argvs("for i in 1 2; do run $i; done") == [("run", "1"), ("run", "2")]
    assert argvs("for ((i=3;i>0;i-=2)); do run $i; done") == [("run", "3"), ("run", "1")]
    assert argvs("for h in $(seq 2)\ndo\nfor i in a b; do run $h$i & done; done; wait") == [
        ("run", "1a"),
        ("run", "1b"),
        ("run", "2a"),
        ("run", "2b"),
    ]
    assert argvs("f() { run $X; }\nfunction g { f; }\nX=1; f; X=2; g") == [("run", "1"), ("run", "2")]
    assert argvs("(X=1; run $X); run $X") == [("run", "1"), ("run", "${X}")]
    assert argvs("case $1 in\n a) run a;;\n b|c) run b;;\nesac") == [("run", "a"), ("run", "b")]
    assert argvs("[[ $x =~ ^(a|b)$ && 1 < 2 ]] || run a") == [("run", "a")]


def test_arguments() -> None:
    """Those of a function, of a sourced and of the read script, as its shell counts and moves them."""
    f = 'f() { run $1 ${2:-b} ${3-c} ${2:+x} $# "$*"; }\n'
    assert argvs(f"{f}f; f 1 '2 3'; g() {{ f \"$@\"; }}; g '' 4") == [
        ("run", "b", "c", "0", ""),
        ("run", "1", "2", "3", "c", "x", "2", "1 2 3"),
        ("run", "4", "c", "x", "2", " 4"),
    ]
    assert argvs("f() { run ${@:2}; shift; run $@; shift 2; run $1; }\nf 1 2 3 4") == [
        ("run", "2", "3", "4"),
        ("run", "2", "3", "4"),
        ("run", "4"),
    ]
    (command,) = script("export A=1\nf() { run $A$1; }\nB=2 A=3 f x; f() { :; }\nexport C").commands
    assert (command.argv, command.env) == (("run", "3x"), {"A": "3", "B": "2"})
    read = read_script("run $1 $2; f() { run $1; }; f x; run $1", lambda name: None, arguments=("a",))
    assert [command.argv for command in read.commands] == [("run", "a"), ("run", "x"), ("run", "a")]
    assert not read.notes
    assert argvs(". h 1\nrun $1", h="run $1") == [("run", "1"), ("run", "$$1")]


def test_arguments_that_only_a_run_knows() -> None:
    read = script("run $1 ${2:-b}")
    assert [command.argv for command in read.commands] == [("run", "$$1", "b")]
    assert read.notes == (
        "check: line 1: `$1` is not known here: put its value in",
        "check: line 1: `${2:-b}` may be given to the script: its default is taken",
    )
    loop = "f() { while [ $# -gt 0 ]; do case $1 in -n) N=$2; shift 2;; -p) P=$2; shift;; esac; done; run $N $P $1; }"
    assert argvs(f"{loop}\nf -n 2 -p 3 x") == [("run", "${N}", "${P}", "$$1")]
    assert argvs("f() { while [ $# -gt 0 ]; do run $1; shift; done; run $1; }\nf a b") == [
        ("run", "$$1"),
        ("run", "$$1"),
    ]
    branch = "f() { if [ $1 = -v ]; then shift; fi; run $1; }\ng() { if [ $1 = -v ]; then run $2; fi; run $1; }"
    assert argvs(f"{branch}\nf -v a; g -v b") == [("run", "$$1"), ("run", "b"), ("run", "-v")]


def test_what_commands_are_given() -> None:
    (command,) = script("A=1; export B=2 C; C=3; D=4 run; E=5").commands
    assert (command.argv, command.env) == (("run",), {"B": "2", "C": "3", "D": "4"})
    (command,) = script("set -a; A=1; set +a; B=2; cd x; cd y; run").commands
    assert (command.env, command.folder) == ({"A": "1"}, "x/y")


def test_folders_are_left_again() -> None:
    text = "cd a\ncd -- b\nx\ncd -\ny\npushd c >/dev/null\npushd d\nx\npopd\ny\npopd >/dev/null\nz\npopd\ncd -\nz\ncd ../..\nz"
    folders = ["a/b", "a", "a/c/d", "a/c", "a", "a/c", "."]
    assert [command.folder for command in script(text).commands] == folders


def test_what_commands_export_is_noted() -> None:
    notes = script("export $(grep -v '^#' .env | xargs) A=1\nexport -p B").notes
    hint = "what it sets is not known here; say it in `env`, or in `env_file`"
    assert notes == (f"check: line 1: `export $(grep -v '^#' .env | xargs)`: {hint}",)


def test_branches_are_not_guessed() -> None:
    read = script('X=1\nif [ -n "$Y" ]; then X=2; Z=3; run then; else run else; fi\nrun $X $Z')
    assert [(command.argv, command.maybe) for command in read.commands] == [
        (("run", "then"), "if"),
        (("run", "else"), "if"),
        (("run", "1", "${Z:-3}"), ""),
    ]
    assert read.notes == ("check: line 2: `X` depends on an `if`: what it is before that is taken",)


def test_nothing_is_run(tmp_path: Path) -> None:
    target = tmp_path / "made"
    read = script(f"touch {target}\nX=$(touch {target})\nrun `touch {target}` \"$X\"\neval 'touch {target}'")
    assert not target.exists()
    assert [command.argv[0] for command in read.commands] == ["touch", "run", "touch"]
    assert len(read.notes) == 2


def test_secrets_are_never_filled_in() -> None:
    read = script("export HF_TOKEN=hf_abc URL=http://me:pw@host\nX=$HF_TOKEN run --key $HF_TOKEN --at $URL")
    (command,) = read.commands
    assert command.argv == ("run", "--key", "${HF_TOKEN}", "--at", "${URL}")
    assert command.env["X"] == "${HF_TOKEN}"
    assert argvs("HF_TOKEN=hf_abc; run ${HF_TOKEN%c} ${HF_TOKEN:0:4}") == [
        ("run", "$${HF_TOKEN%c}", "$${HF_TOKEN:0:4}")
    ]


def test_here_documents_are_files_of_the_script() -> None:
    read = script("cat > h <<'EOF'\na slots=2\nEOF\nrun <<-X\n\tfor\n\tX\nrun $(cat h)")
    assert [command.argv for command in read.commands] == [("run",), ("run", "a", "slots=2")]
    assert read.files == {"h": "a slots=2\n"}


def test_where_output_goes() -> None:
    text = "a\nb > >(tee log)\nexec 3< in\nc\nexec > >(tee -a log) 2>&1\nd\n"
    assert [(one.argv, one.logged) for one in script(text).commands] == [
        (("a",), False), (("b",), True), (("c",), False), (("d",), True),
    ]  # fmt: skip


def test_what_commands_read() -> None:
    text = 'X=\'a b\'\nrun <<EOF\n$X "$X" \\"c\\" \\$X $(d) it\'s\nEOF\nrun <<\'EOF\'\n$X\nEOF\nrun < h; run < other; run <<< "$X"\n'
    text += "run <<EOF < h\ne\nEOF\nrun <<EOF\n`f\nEOF\n"
    read = [command.stdin for command in script(text, h="$g\n").commands]
    assert read == ['\na b "a b" \\"c\\" $$X $$(d) it\'s\n', "\n$$X\n", "$$g\n", None, "a b", "$$g\n", "\n`f\n"]


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("run $(head -1 h) $(head -n 2 h) $(sed -n 2p h) $(wc -l < h) $(cat h | wc -l)",
         ("run", "a", "1", "a", "1", "b", "2", "c", "b", "2", "c", "2", "2")),
        ("F=h; run $(head -1 $F) \"$(head -n1 \"$F\")\"", ("run", "a", "1", "a 1")),
        ("run $(head -1 other) $(cat -n h)", ("run", "$$(head -1 other)", "$$(cat -n h)")),
        ("IFS=, read -ra L <<< 'a,b c,'; run \"${L[@]}\" ${#L[@]}", ("run", "a", "b c", "2")),
        ("X=1:2; IFS=':' read A B C <<< \"$X:3:4\"; run $A $B $C", ("run", "1", "2", "3:4")),
        ("read A B < h; run $A $B", ("run", "a", "1")),
        ("read -p 'Host: ' A; run $A", ("run", "${A}")),
        ("mapfile -t L < h; readarray -t M < other; run \"${L[1]}\" ${#L[@]} $M", ("run", "b 2 c", "2", "${M}")),
        ("mapfile -t L < <(cat h); read A B < <(head -n 1 h); run ${#L[@]} $A", ("run", "2", "a")),
        ("mapfile -t L < <(grep a h); read A < <(sort h); run ${#L[@]} $A", ("run", "$${#L[@]}", "${A}")),
        ("IFS=, read -ra L <<< $X; run ${#L[@]} ${L[0]}", ("run", "$${#L[@]}", "$${L[0]}")),
        ("mapfile L <<< $X; read A B <<< $X; run ${#L[@]} $A", ("run", "$${#L[@]}", "${A}")),
        ("IFS=, read -ra L <<< ${X:-a,b}; run ${#L[@]} ${L[1]}", ("run", "2", "b")),
    ],
)  # fmt: skip
def test_what_is_read_of_files(text: str, argv: tuple[str, ...]) -> None:
    assert argvs(text, h="a 1\nb 2 c\n")[-1] == argv


def test_loops_over_lines() -> None:
    loop = 'while IFS= read -r a || [ -n "$a" ]; do run "$a"; done < h\nwhile read a b; do run $b; done <<EOF\n1 2\n\nEOF\n'
    read = script(f"{loop}while read -r a; do run $a; done < other", h="a 1\nb 2 c\n")
    argvs = [("run", "a 1"), ("run", "b 2 c"), ("run", "2"), ("run", "${a}")]
    assert [command.argv for command in read.commands] == argvs
    assert [command.maybe for command in read.commands] == ["", "", "", "while"]


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("X=a.b.c; run ${X%.*} ${X%%.*} ${X#*.} ${X##*.} ${X%x} ${X#a.}", ("run", "a.b", "a", "b.c", "c", "a.b.c", "b.c")),
        ("X=a,b,c; run ${X//,/ } ${X/,/-} ${X//,}", ("run", "a", "b", "c", "a-b,c", "abc")),
        ("X=abcd; run ${X:1} ${X:1:2} ${X: -1} ${X:1:-1} ${X^^}", ("run", "bcd", "bc", "d", "bc", "ABCD")),
        ("L=(a:1 b:2); run ${L[1]%:*} ${L[@]%:*}", ("run", "b", "$${L[@]%:*}")),
        ("f() { run ${1%:*}; }; f a:1", ("run", "a")),
        ("X=a; run ${X%$Y} ${Y%.*} ${X/[a-z]/b}", ("run", "$${X%$$Y}", "$${Y%.*}", "$${X/[a-z]/b}")),
        ("i=1; ((i++)); ((j=i*2, i+=5)); ((i > 3)); run $i $j", ("run", "7", "4")),
        ("i=1; let i++ 'j = i + 2'; run $i $j $((i++)) $i $((i+=2))", ("run", "2", "4", "2", "3", "5")),
        ("i=1; ((i=RANDOM)); run $i", ("run", "${i}")),
    ],
)  # fmt: skip
def test_what_is_made_of_variables(text: str, argv: tuple[str, ...]) -> None:
    assert argvs(text)[-1] == argv


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a\nb 'c\nd", 2, "the quote that is opened here is never closed"),
        ('a\nb "c\nd', 2, "the quote that is opened here is never closed"),
        ("a\nb $(c", 2, "the `$(` that is opened here is never closed"),
        ("a\nb ${c", 2, "the `${` that is opened here is never closed"),
        ("a\nb `c", 2, "the backtick that is opened here is never closed"),
        ("for i in 1; do\na", 2, "the end is not expected here"),
        ("a\ndone", 2, "`done` is not expected here"),
        ("if a; then\nfi; fi", 2, "`fi` is not expected here"),
        ("case a in\nb) c ;& d) e ;;& esac\nwait ;& a", 3, "`;&` is not expected here"),
        ("a ;;& b", 1, "`;;&` is not expected here"),
        ("for i in $(seq 3000); do for j in $(seq 3000); do a; done; done", 1, "more than 4096 commands"),
        ("f() { f; }\nf", 1, "the script calls itself"),
        ("( " * 60, 1, "nested more than 50 levels deep"),
    ],
)
def test_what_is_no_script_is_refused(text: str, line: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, left = syntax._Parser.statement, iter(range(1000))

    def once(self: syntax._Parser, token: Token) -> syntax.Statement:
        assert next(left, None) is not None, "the same word is read again and again"
        return read(self, token)

    monkeypatch.setattr(syntax._Parser, "statement", once)
    with pytest.raises(ImportProblem) as refused:
        script(text)
    assert (refused.value.line, refused.value.message) == (line, message)


def test_loops_that_never_end_are_refused() -> None:
    with pytest.raises(ImportProblem, match="rounds"):
        script("for ((i=0;i<10;i--)); do X=1; done")


def test_lists_of_variables() -> None:
    assert read_list("A = 1  # one\n\n# none\nexport B='x y'\nC=\"z\"\nD =\nE = a b\n") == {
        "A": "1",
        "B": "x y",
        "C": "z",
        "D": "",
        "E": "a b",
    }
    assert read_list("A=$X\n") is None
    assert read_list("A=1 run\n") is None
    assert read_list("run\n") is None


def test_words_of_the_spec() -> None:
    assert with_defaults("a$$b${X:-c}") == "a$bc"
    assert (literal("$5 ${x}"), for_people(literal("$5 ${x}"))) == ("$$5 $${x}", "$5 ${x}")
    assert required_variables("${A}${B:-1}$$${C:?x}$${D}") == ["A", "C"]
    with pytest.raises(Unknown):
        with_defaults("${X}")
