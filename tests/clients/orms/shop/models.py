"""The models of django_app.py."""

from django.db import models
from django.db.models import Q


class Customer(models.Model):
    name = models.CharField(max_length=100)
    email = models.EmailField(unique=True)
    joined = models.DateTimeField(auto_now_add=True)
    data = models.JSONField(default=dict)


class Order(models.Model):
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="orders")
    total = models.DecimalField(max_digits=10, decimal_places=2)
    paid = models.BooleanField(default=False)
    placed = models.DateField(null=True)
    took = models.DurationField(null=True)

    class Meta:
        indexes = [models.Index(fields=["total"], condition=Q(paid=True), name="paid_total")]
        constraints = [
            models.CheckConstraint(condition=Q(total__gte=0), name="total_ge"),
            models.UniqueConstraint(fields=["customer", "placed"], name="one_a_day"),
        ]
