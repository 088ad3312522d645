"""Django over psycopg 3: migrates the applications of contrib, makes tables of its own models, runs
queries of the kinds that applications have, and reads the tables back with inspectdb. Connects as
libpq's variables say."""

import datetime
import io
import os
from decimal import Decimal

import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
                    "django.contrib.sessions", "django.contrib.messages", "shop"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"], "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"], "USER": os.environ["PGUSER"],
    }},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402
from django.db.models import Avg, Count, F, OuterRef, Subquery, Sum, Window  # noqa: E402
from django.db.models.functions import RowNumber, TruncMonth  # noqa: E402
from shop.models import Customer, Order  # noqa: E402


def fill():
    ann = Customer.objects.create(name="Ann", email="ann@x.org", data={"a": [1, {"b": "c"}]})
    bob, made = Customer.objects.get_or_create(email="bob@x.org", defaults={"name": "Bob"})
    assert made
    Order.objects.create(customer=ann, total=Decimal("12.50"), placed=datetime.date(2026, 1, 2),
                         took=datetime.timedelta(hours=5))
    Order.objects.bulk_create(
        Order(customer=bob, total=n, placed=datetime.date(2026, 2, n + 1)) for n in range(5))
    return ann


def queries():
    assert Customer.objects.filter(data__a__0=1).count() == 1
    assert Customer.objects.filter(data__contains={"a": [1]}).count() == 1
    sums = Customer.objects.annotate(n=Count("orders"), s=Sum("orders__total")).order_by("name")
    assert list(sums.values_list("n", "s")) == [(1, Decimal("12.50")), (5, Decimal("10.00"))]
    months = Order.objects.annotate(m=TruncMonth("placed")).values("m").annotate(n=Count("id"))
    assert [row["n"] for row in months.order_by("m")] == [1, 5]
    assert Order.objects.filter(total__gt=1).update(paid=True) == 4
    with transaction.atomic():
        assert Order.objects.select_for_update().filter(total__gt=3).count() == 2
    bobs = Order.objects.filter(customer__email__icontains="BOB").exclude(total=0)
    assert bobs.aggregate(a=Avg("total"))["a"] == Decimal("2.5")
    ranked = Order.objects.annotate(
        r=Window(RowNumber(), partition_by="customer", order_by=F("total").desc()))
    assert ranked.filter(r=1).count() == 2
    newest = Order.objects.filter(customer=OuterRef("pk")).order_by("-placed").values("placed")[:1]
    last = Customer.objects.annotate(last=Subquery(newest)).order_by("pk").values_list("last", flat=True)
    assert last[0] == datetime.date(2026, 1, 2)
    assert Order.objects.filter(took__gt=datetime.timedelta(hours=1)).count() == 1
    Customer.objects.bulk_create([Customer(name="Rob", email="bob@x.org")], update_conflicts=True,
                                 unique_fields=["email"], update_fields=["name"])
    assert Customer.objects.get(email="bob@x.org").name == "Rob"


call_command("migrate", verbosity=0)
User.objects.create_user("joe", "joe@x.org", "secret")
assert User.objects.get(username="joe").check_password("secret")
with connection.schema_editor() as editor:
    for model in (Customer, Order):
        editor.create_model(model)
ann = fill()
queries()
assert ann.delete() == (2, {"shop.Order": 1, "shop.Customer": 1})
with connection.schema_editor() as editor:
    old, new = Order._meta.get_field("total"), models.DecimalField(max_digits=14, decimal_places=4)
    new.set_attributes_from_name("total")
    editor.alter_field(Order, old, new)
assert Order.objects.aggregate(s=Sum("total"))["s"] == 10
told = io.StringIO()
call_command("inspectdb", stdout=told)
assert "Unable to inspect" not in told.getvalue(), told.getvalue()
assert "customer = models.ForeignKey(ShopCustomer" in told.getvalue(), told.getvalue()
with connection.schema_editor() as editor:
    for model in (Order, Customer):
        editor.delete_model(model)
print("migrations, models, queries, a change of type, inspectdb")
