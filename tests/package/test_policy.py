"""The policy: which rule counts, and what is said of a file that cannot be used."""

from __future__ import annotations

import textwrap

import pytest

from hub_clients import clean  # noqa: F401 - a fixture
from kernelmill.config import override
from kernelmill.errors import PackageError, TrustError
from kernelmill.package.policy import Identity, Policy, RegistrySettings, Rule, read_policy
from kernelmill.package.policy_write import add_rule
from kernelmill.package.registry_open import open_mirrors, open_registry, open_settings

KEY = "ed25519:" + "A" * 43 + "="


def level(rules, repo_id="acme/relu", registry="hub", vouched=None, trust="publisher"):
    return Policy(rules=rules).rule(registry, repo_id, vouched=lambda: vouched, trust=trust).level


def test_the_most_exact_rule_counts_then_the_strictest():
    rules = (Rule("*", 1), Rule("acme", 2), Rule("acme/relu", 3), Rule("acme/*", 1))
    assert level(rules) == 3
    assert level(rules, "acme/gelu") == 1
    assert level(rules, "other/x") == 1
    assert level((Rule("acme", 1), Rule("acme", 2))) == 2
    assert level((Rule("acme", 2), Rule("acme", 1, registry="hub"))) == 1
    assert level((Rule("acme", 2), Rule("acme", 1, registry="company"))) == 2
    with pytest.raises(TrustError, match="refuses its kernels"):
        level((Rule("acme", 3), Rule("acme", 0)))


def test_without_a_rule_the_registry_vouches_or_not():
    assert level((), vouched=True) == 1
    for vouched in (False, None):
        with pytest.raises(TrustError, match="does not vouch for its publisher"):
            level((), vouched=vouched)
    assert level((), trust="all") == 1
    with pytest.raises(TrustError, match="only listed publishers are trusted there"):
        level((), vouched=True, trust="listed")


def test_a_registry_is_asked_only_where_no_rule_decides():
    def fail():
        raise AssertionError("asked")

    assert Policy(rules=(Rule("acme", 2),)).rule("hub", "acme/x", vouched=fail).level == 2
    with pytest.raises(TrustError):
        Policy().rule("hub", "acme/x", vouched=fail, trust="listed")


@pytest.mark.usefixtures("clean")
def test_project_and_user_are_read(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        textwrap.dedent(
            f"""
            [[tool.kernelmill.registry]]
            name = "company"
            url = "s3://kernels"
            mirrors = ["/mnt/kernels"]
            organizations = ["acme", "acme-*"]
            trust = "all"
            token-variable = "T"
            options = {{ endpoint_url = "http://127.0.0.1:1" }}
            [[tool.kernelmill.trust]]
            publisher = "acme"
            level = 3
            keys = ["{KEY}"]
            sigstore = [{{ identity = "a", issuer = "b" }}]
            """
        )
    )
    (tmp_path / "hub.toml").write_text('[[trust]]\npublisher = "me"\n')
    policy = read_policy(tmp_path)
    assert policy.rules == (Rule("acme", 3, "*", (KEY,), (Identity("a", "b"),)), Rule("me", 1))
    (company,) = policy.registries
    assert company.serves("acme-labs/x")
    assert not company.serves("acme2/x")
    assert policy.registry("other/x").name == "hub"
    assert read_policy().rules == (Rule("me", 1),)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[trust]]\n", "trust[0].publisher is None; accepted: a text"),
        ("[trust]\n", "trust is no list of tables; written [[trust]]"),
        ('[[trust]]\npublisher = "a"\nlevel = 4\n', "level is 4; accepted: 0 (refuse), 1, 2, 3"),
        ('[[trust]]\npublisher = "a"\nlevel = true\n', "level is True"),
        ('[[trust]]\npublisher = "a"\nlevle = 1\n', "has the unknown key 'levle'; known: keys, level"),
        ('[[trust]]\npublisher = "a b"\n', "publisher is 'a b'; accepted: organization[/name]"),
        ('[[trust]]\npublisher = "a"\nlevel = 3\n', "asks for level 3 and names neither keys nor"),
        ('[[trust]]\npublisher = "a"\nkeys = ["x"]\n', "keys has 'x'; accepted: ed25519: and base64"),
        ('[[trust]]\npublisher = "a"\nsigstore = [{identity = "x"}]\n', "sigstore[0].issuer is None"),
        ('[[registry]]\nname = "a"\n', "registry[0].url is None"),
        ('[[registry]]\nname = "a"\nurl = "b"\ntrust = "some"\n', "accepted: publisher, all, listed"),
        ('[[registry]]\nname = "a"\nurl = "b"\nmirrors = "c"\n', "accepted: a list of texts"),
        ('[[registry]]\nname = "a"\nurl = "b"\noptions = 1\n', "accepted: a table"),
        ("registries = 1\n", "has the unknown key 'registries'; known: registry, trust"),
        ("= 1\n", "is no TOML"),
        ("#" * (1 << 20) + "\n", "has more than 1 MiB"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(tmp_path, text, said):
    (tmp_path / "hub.toml").write_text(text)
    with pytest.raises(PackageError) as caught:
        read_policy()
    assert said in str(caught.value)
    assert str(tmp_path / "hub.toml") in str(caught.value)


def test_addresses_become_registries(tmp_path):
    assert open_registry("https://hub.example.com/").url == "https://hub.example.com"
    assert open_registry("hub+http://127.0.0.1:1").url == "http://127.0.0.1:1"
    assert open_registry("files+http://127.0.0.1:1/x").url == "http://127.0.0.1:1/x"
    assert open_registry(str(tmp_path)).url == tmp_path.as_uri()
    assert [type(r).__name__ for r in open_mirrors(RegistrySettings("a", "b", ("/x", "https://y")))] == [
        "FilesRegistry", "HubRegistry",
    ]  # fmt: skip
    with pytest.raises(PackageError, match="holds a name or a password"):
        open_registry("https://me:secret@hub.example.com")
    with pytest.raises(PackageError, match="takes its token from NO_SUCH_VARIABLE"):
        open_settings(RegistrySettings("a", "https://x", token_variable="NO_SUCH_VARIABLE"))


def test_a_rule_is_added_whole(tmp_path):
    rule = Rule(
        "org",
        3,
        identities=(Identity("a@b.c", "https://issuer"),),
        trusted_root="/etc/root.json",
    )
    with override(hub_config=tmp_path / "hub.toml"):
        add_rule(rule)
        add_rule(rule)
        assert read_policy().rules == (rule,)
