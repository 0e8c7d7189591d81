/* The empty program that a start is measured against. */
int main(void)
{
	return 0;
}
